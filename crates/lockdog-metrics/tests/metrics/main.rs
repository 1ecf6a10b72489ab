//! What the metrics say, and that the alert rules, the dashboard and the documents name no others.

mod counted;
mod dashboard;
mod files;
mod labels;
mod prometheus;
mod service;
mod spans;
mod support;
