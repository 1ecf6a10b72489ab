mod redisson_driver;
mod support;
