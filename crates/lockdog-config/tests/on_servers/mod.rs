//! Comparisons with Redisson's own classes, in a JVM.

mod exclusion;
mod files;
mod java;
mod setters;
