//! An owner for each request of a service.

use std::task::{Context, Poll};

use tokio::task::futures::TaskLocalFuture;
use tower_layer::Layer;
use tower_service::Service;

use super::{Owner, SCOPE};

/// Gives each request of a tower or axum service an owner of its own. Redisson has no such layer, because a
/// servlet's request has a thread.
///
/// An HTTP/1 server handles all requests of a keep-alive connection in one task. Without the layer they are
/// one owner: if a request leaves a guard in a job, the next request on that connection re-enters the lock
/// while the job works. With the layer, nested calls inside one request re-enter as before, and two requests
/// never share an owner.
///
/// Branches of `join!` inside one request still are one owner. A task that a handler spawns is an owner of
/// its own; wrap it with [`Owner::scope`] to make it the request's.
///
/// The server polls the body of a response after the request, outside the layer. A lock that is acquired inside a
/// streamed body has the task of the connection as its owner. To make it the request's, take
/// [`Owner::current`] in the handler, and pass it to the body's locks with
/// [`owner`](crate::request::LockRequest::owner).
///
/// Its services are `Clone`, if the inner one is, and allocate nothing for a request.
///
/// # Examples
///
/// ```no_run
/// use axum::Router;
/// use axum::extract::State;
/// use axum::routing::post;
/// use lockdog::Client;
/// use lockdog::tower::OwnerLayer;
///
/// async fn close(State(client): State<Client>) {
///     let _guard = client.lock("accounts:7").lock().await;
/// }
///
/// # async fn example(client: Client) -> Router {
/// Router::new()
///     .route("/close", post(close))
///     .layer(OwnerLayer::new())
///     .with_state(client)
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerLayer(());

impl OwnerLayer {
    /// A layer. It has no settings.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for OwnerLayer {
    type Service = OwnerService<S>;

    fn layer(&self, inner: S) -> OwnerService<S> {
        OwnerService { inner }
    }
}

/// A service whose requests have owners of their own, from [`OwnerLayer`].
#[derive(Clone, Copy, Debug)]
pub struct OwnerService<S> {
    inner: S,
}

impl<S, R> Service<R> for OwnerService<S>
where
    S: Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = TaskLocalFuture<Owner, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let owner = Owner::new();
        // The service's own code in `call` runs before the future, and belongs to the request too.
        let response = SCOPE.sync_scope(owner, || self.inner.call(request));
        SCOPE.scope(owner, response)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Future, Ready, ready};
    use std::pin::Pin;

    use super::*;

    /// Answers with the owner that it has when it is called, and when its future runs.
    #[derive(Clone)]
    struct Handler;

    type Answer = Result<[Owner; 3], Infallible>;

    impl Service<()> for Handler {
        type Response = [Owner; 3];
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            let called = Owner::current();
            Box::pin(async move {
                let before = Owner::current();
                tokio::task::yield_now().await;
                Ok([called, before, Owner::current()])
            })
        }
    }

    #[tokio::test]
    async fn each_request_of_a_task_has_one_owner_of_its_own() {
        let mut service = OwnerLayer::new().layer(Handler);
        let (first, second) = tokio::join!(service.call(()), service.clone().call(()));
        let (Ok(first), Ok(second), Ok(third)) = (first, second, service.call(()).await);
        for owners in [first, second, third] {
            assert_eq!(owners, [owners[0]; 3], "one owner from its call to its end");
        }
        let outside = Owner::current();
        let mut all = vec![first[0], second[0], third[0], outside];
        all.dedup();
        assert_eq!(all.len(), 4);
        // Without the layer all of them would be the task.
        let Ok(plain) = Handler.call(()).await;
        assert_eq!(plain, [outside; 3]);
    }

    #[test]
    fn a_service_is_as_light_as_the_inner_one() {
        fn is_sound<T: Clone + Send + Sync + 'static>() {}
        is_sound::<OwnerService<Handler>>();
        assert_eq!(size_of::<OwnerService<Handler>>(), 0);
        let future = size_of::<<OwnerService<Unboxed> as Service<()>>::Future>();
        assert!(future <= 64, "{future} bytes, and no box");
    }

    struct Unboxed;

    impl Service<()> for Unboxed {
        type Response = ();
        type Error = Infallible;
        type Future = Ready<Result<(), Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            ready(Ok(()))
        }
    }
}
