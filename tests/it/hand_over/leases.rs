//! What a hold that was handed on is worth.
