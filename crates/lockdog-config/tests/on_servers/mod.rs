//! Beside Redisson's own classes, in a JVM.

mod files;
mod java;
mod setters;
