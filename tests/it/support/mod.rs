pub mod redisson;
