//! The lock against models: its answers and keys after any sequence of calls, and whether the times of
//! its holders ever overlap.

mod history;
mod linear;
mod repetition;
mod sequences;
mod state;
mod wake_up;
