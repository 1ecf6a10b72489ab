//! What rustc says where a caller passes a request to a function that takes a future.

/// Lets rustc suggest `.into_future()` where this type is used as a future. The implementation needs a trait
/// that nothing implements, so the request is no future.
macro_rules! not_a_future {
    ($request:ty, $output:ty $(, $guard:ident)?) => {
        #[doc(hidden)]
        impl$(<$guard: FromGuard>)? Future for $request
        where
            // Without the lifetime, rustc refuses a bound that never holds, unless a parameter is in it.
            for<'any> (): crate::lock_request::IntoFutureIsCalled<Self>,
        {
            type Output = $output;

            fn poll(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                match <() as crate::lock_request::IntoFutureIsCalled<Self>>::NEVER {}
            }
        }
    };
}

pub(crate) use not_a_future;

/// Prevents other crates from implementing [`IntoFutureIsCalled`](sealed::IntoFutureIsCalled).
pub(crate) mod sealed {
    /// Nothing implements it. Its name is in the error of rustc.
    ///
    /// It is not a trait of the request, because rustc then prints the message of `Future`.
    #[diagnostic::on_unimplemented(
        message = "`{Request}` is not a future: call `.into_future()` on it",
        label = "add `.into_future()`",
        note = "`.await` takes the request itself; `tokio::spawn` and `join_all` take `request.into_future()`"
    )]
    #[expect(unnameable_types, reason = "no other crate may name it")]
    pub trait IntoFutureIsCalled<Request> {
        /// A value that does not exist.
        const NEVER: std::convert::Infallible;
    }
}
