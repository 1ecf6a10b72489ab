//! The lock against models of itself: what it answers and leaves in Redis after any sequence of
//! calls, and whether its holders' times ever overlap.

mod history;
mod linear;
mod repetition;
mod sequences;
mod state;
mod wake_up;
