//! The callers' connections to one server: one for each runtime that calls.
//!
//! The runtime that opened a connection drives it. A runtime that is idle, blocked or ended affects
//! only its own callers (design: invariant 14), and a command never moves between threads.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use super::Context;
use super::connection::Connection;
use super::connection_slot::ConnectionSlot;
use super::endpoint::Endpoint;
use super::failure::Failure;
use super::single_flight::{Attempt, SingleFlight};

/// The connections of all callers.
pub(super) struct Callers {
    inner: Arc<Inner>,
    /// How many runtimes may have their own connection.
    most: usize,
    /// The connection for all further runtimes. The background drives it.
    shared: ConnectionSlot,
}

struct Inner {
    /// Read for each command.
    current: RwLock<Vec<(Id, Connection)>>,
    /// Lock order: this one before `current`. `None` once the client has ended.
    runtimes: Mutex<Option<Vec<Runtime>>>,
}

/// A runtime that calls, while it exists.
struct Runtime {
    id: Id,
    opening: Arc<SingleFlight<Connection>>,
    /// `None` until it is spawned.
    task: Option<AbortHandle>,
}

impl Runtime {
    fn opens_by(&self, opening: &Weak<SingleFlight<Connection>>) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.opening), opening.as_ptr())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Callers {
    pub(super) fn new(context: &Context, most: usize) -> Self {
        let inner = Inner {
            current: RwLock::default(),
            runtimes: Mutex::new(Some(Vec::new())),
        };
        Self {
            inner: Arc::new(inner),
            most,
            shared: ConnectionSlot::new(&context.clock),
        }
    }

    /// The current runtime's own connection, if it has one.
    pub(super) fn current(&self) -> Option<Connection> {
        let runtime = Handle::try_current().ok()?.id();
        self.inner.connection_of(runtime)
    }

    /// Any runtime's connection.
    pub(super) fn any(&self) -> Option<Connection> {
        let current = self.inner.current.read();
        let mut found = current.iter().map(|(_, connection)| connection);
        found.find(|it| it.is_current()).cloned()
    }

    /// The connection for this runtime, opened if there is none, within `limit`.
    ///
    /// # Cancel safety
    ///
    /// The attempt continues for the next caller.
    pub(super) async fn connection(
        &self,
        runtime: &Handle,
        endpoint: &Arc<Endpoint>,
        context: &Context,
        limit: Duration,
    ) -> Result<Connection, Failure> {
        // Independent of the caller's limit: if callers with short limits ended the attempt, it might never
        // succeed.
        let timeout = context.command_timeout;
        let endpoint = endpoint.clone();
        let Some(opening) = self.opening(runtime, context)? else {
            let background = context.background.runtime();
            let open = || async move { endpoint.open(timeout).await };
            return self.shared.get(background, limit, open).await;
        };
        let inner = Arc::downgrade(&self.inner);
        let (id, of) = (runtime.id(), Arc::downgrade(&opening));
        let there = || self.inner.connection_of(id);
        let open = || async move {
            let opened = endpoint.open(timeout).await?;
            if let Some(inner) = inner.upgrade() {
                inner.put(id, &of, &opened);
            }
            Ok(opened)
        };
        opening.get_unless(runtime, limit, there, open).await
    }

    /// This runtime's attempts to connect; `None` if too many runtimes have a connection.
    fn opening(
        &self,
        runtime: &Handle,
        context: &Context,
    ) -> Result<Option<Arc<SingleFlight<Connection>>>, Failure> {
        let id = runtime.id();
        let opening = {
            let mut runtimes = self.inner.runtimes.lock();
            let runtimes = runtimes.as_mut().ok_or(Failure::Closed)?;
            if let Some(known) = runtimes.iter().find(|known| known.id == id) {
                return Ok(Some(known.opening.clone()));
            }
            if runtimes.len() >= self.most {
                return Ok(None);
            }
            let opening = Arc::new(SingleFlight::new(&context.clock));
            runtimes.push(Runtime {
                id,
                opening: opening.clone(),
                task: None,
            });
            opening
        };
        let leaving = Leaving {
            inner: Arc::downgrade(&self.inner),
            of: Arc::downgrade(&opening),
        };
        // The task ends with the runtime and then removes the connection, which no runtime drives
        // any more. If the runtime has already ended, the task is dropped here.
        let task = runtime.spawn(async move {
            let _leaving = leaving;
            std::future::pending::<()>().await;
        });
        let task = task.abort_handle();
        let mut runtimes = self.inner.runtimes.lock();
        let of = Arc::downgrade(&opening);
        let mut known = runtimes.iter_mut().flatten();
        match known.find(|known| known.opens_by(&of)) {
            Some(known) => known.task = Some(task),
            None => task.abort(),
        }
        Ok(Some(opening))
    }

    /// Removes `connection`, unless another one has replaced it. Returns whether it was there.
    pub(super) fn remove(&self, connection: &Connection) -> bool {
        let mut current = self.inner.current.write();
        let before = current.len();
        current.retain(|(_, found)| !found.is(connection));
        let was_there = current.len() < before;
        drop(current);
        self.shared.remove(connection) || was_there
    }

    /// Removes all connections and ends all attempts to open one.
    pub(super) fn clear(&self) {
        self.take_all(|runtimes| runtimes.as_mut().map(std::mem::take));
    }

    /// As [`Callers::clear`], and refuses further attempts.
    pub(super) fn close(&self) {
        self.take_all(Option::take);
    }

    fn take_all(&self, take: impl FnOnce(&mut Option<Vec<Runtime>>) -> Option<Vec<Runtime>>) {
        let mut runtimes = self.inner.runtimes.lock();
        let gone = take(&mut runtimes);
        self.inner.current.write().clear();
        drop(runtimes);
        for runtime in gone.iter().flatten() {
            runtime.opening.abort();
        }
        self.shared.clear();
    }

    /// Visits the attempts to connect.
    pub(super) fn each_attempt(&self, visit: &mut dyn FnMut(&dyn Attempt)) {
        for runtime in self.inner.runtimes.lock().iter().flatten() {
            visit(&*runtime.opening);
        }
        visit(self.shared.attempt());
    }
}

impl Inner {
    fn connection_of(&self, runtime: Id) -> Option<Connection> {
        let current = self.current.read();
        let (_, found) = current.iter().find(|(id, _)| *id == runtime)?;
        found.is_current().then(|| found.clone())
    }

    /// Stores a connection that this runtime opened, if the runtime is still registered.
    fn put(&self, id: Id, opening: &Weak<SingleFlight<Connection>>, connection: &Connection) {
        let runtimes = self.runtimes.lock();
        let mut known = runtimes.iter().flatten();
        if known.any(|known| known.opens_by(opening)) {
            let mut current = self.current.write();
            current.retain(|(known, _)| *known != id);
            current.push((id, connection.clone()));
        }
    }
}

/// Unregisters the runtime on drop, which happens when the runtime ends.
struct Leaving {
    inner: Weak<Inner>,
    of: Weak<SingleFlight<Connection>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else {
            return;
        };
        let mut guard = inner.runtimes.lock();
        let Some(runtimes) = &mut *guard else { return };
        let Some(at) = runtimes.iter().position(|it| it.opens_by(&self.of)) else {
            return;
        };
        let gone = runtimes.swap_remove(at);
        inner.current.write().retain(|(id, _)| *id != gone.id);
        drop(guard);
        gone.opening.abort();
    }
}
