//! Next to real Redisson on one server: live, and against recordings of what it does.

mod replay;
