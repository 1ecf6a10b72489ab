//! One connection through the proxy: a reader and a writer for each direction.
//!
//! Everything that goes to one side passes through one queue, so that held, delayed and made-up
//! pieces keep the order in which they belong. All four halves run in one task, so none of them is
//! interrupted between two awaits by another.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::support::proxy::answers::{Answers, Fate};
use crate::support::proxy::faults::Direction;
use crate::support::proxy::gate::Gate;
use crate::support::proxy::outbound::Parcel;
use crate::support::proxy::rules::{Action, Rule};
use crate::support::proxy::{Shared, reset};
use crate::support::resp::{self, Reply};

#[derive(Debug)]
pub(super) struct Link {
    answers: Mutex<Answers>,
    client_left: AtomicBool,
    pub(super) ending: watch::Sender<Option<Ending>>,
    /// The request that waits at a gate, for delivery after the end if it still waits then.
    held: Mutex<Option<Held>>,
    pub(super) id: u64,
    /// The client is a replica, so the data are no requests and replies any more.
    is_replication: AtomicBool,
    /// The commands that a fresh connection needs first: AUTH, HELLO and SELECT.
    pub(super) login: Mutex<Vec<Vec<u8>>>,
    pub(super) shared: Arc<Shared>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Cut,
    Reset,
}

impl Link {
    pub(super) fn new(id: u64, shared: Arc<Shared>) -> Self {
        Self {
            answers: Mutex::default(),
            client_left: AtomicBool::new(false),
            ending: watch::Sender::new(None),
            held: Mutex::default(),
            id,
            is_replication: AtomicBool::new(false),
            login: Mutex::default(),
            shared,
        }
    }

    pub(super) fn client_is_there(&self) -> bool {
        !self.client_left.load(Ordering::Relaxed)
    }

    /// Ends the connection; false if it was ending already.
    pub(super) fn end(&self, ending: Ending) -> bool {
        let first = self.ending.send_if_modified(|state| {
            let first = state.is_none();
            state.get_or_insert(ending);
            first
        });
        if first {
            self.client_left.store(true, Ordering::Relaxed);
            self.shared.faults.count(|counts| match ending {
                Ending::Cut => counts.cut += 1,
                Ending::Reset => counts.reset += 1,
            });
        }
        first
    }

    pub(super) async fn run(self: Arc<Self>, mut client: TcpStream) {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, self.shared.target())).await {
            Ok(server) => self.carry(&mut client, server).await,
            Err(_) => {
                self.shared.faults.count(|counts| counts.unreachable += 1);
                reset(&client);
            }
        }
        self.client_left.store(true, Ordering::Relaxed);
        self.shared.links.lock().unwrap().remove(&self.id);
        drop(client);
        let held = self.held.lock().unwrap().take();
        if let Some(Held {
            gate,
            request,
            rule,
        }) = held
        {
            self.replay(rule, gate, request).await;
        }
    }

    async fn carry(&self, client: &mut TcpStream, mut server: TcpStream) {
        // Without it the kernel would add delays that no test asked for.
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let ending = {
            let (client_reader, client_writer) = client.split();
            let (server_reader, server_writer) = server.split();
            let (to_client, client_queue) = unbounded_channel();
            let (to_server, server_queue) = unbounded_channel();
            let mut ending = self.ending.subscribe();
            let work = async {
                tokio::join!(
                    self.read_requests(client_reader, to_server, to_client.clone()),
                    self.read_replies(server_reader, to_client.clone()),
                    self.write(Direction::ToClient, client_queue, client_writer),
                    self.write(Direction::ToServer, server_queue, server_writer),
                )
            };
            tokio::select! {
                // An ended connection carries nothing more, whatever gate opens after its end.
                biased;
                ended = ending.wait_for(Option::is_some) => ended.ok().and_then(|state| *state),
                _ = work => None,
            }
        };
        if ending == Some(Ending::Reset) {
            reset(client);
            reset(&server);
        }
    }

    async fn read_requests(
        &self,
        mut client: ReadHalf<'_>,
        to_server: UnboundedSender<Parcel>,
        to_client: UnboundedSender<Parcel>,
    ) {
        let mut buffer = Vec::new();
        loop {
            while let Some((length, args)) = self.request(&buffer) {
                let request: Vec<u8> = buffer.drain(..length).collect();
                if args.is_empty() {
                    continue;
                }
                self.shared.log.add(self.id, &args);
                let rule = self.shared.rules.apply(&args);
                if let Some(Action::HoldRequest(gate)) = rule.as_ref().map(Rule::action) {
                    let rule = rule.clone().expect("its action was just read");
                    let held = Held {
                        gate: gate.clone(),
                        request: request.clone(),
                        rule,
                    };
                    *self.held.lock().unwrap() = Some(held);
                    gate.reach();
                    tokio::select! {
                        biased;
                        () = gate.opened() => drop(self.held.lock().unwrap().take()),
                        () = self.read_to_end(&mut client, &mut buffer) => return,
                    }
                }
                // A replica waits for each answer until here, so none is under way.
                if args[0].eq_ignore_ascii_case("PSYNC") {
                    self.is_replication.store(true, Ordering::Relaxed);
                    let _ = to_server.send(self.piece(Direction::ToServer, request));
                    continue;
                }
                self.pass_on(rule, &args, request, &to_server, &to_client);
            }
            if self.is_replication.load(Ordering::Relaxed) {
                let stream = std::mem::take(&mut buffer);
                let _ = to_server.send(self.piece(Direction::ToServer, stream));
            }
            if !self
                .read(Direction::ToServer, &mut client, &mut buffer)
                .await
            {
                self.client_left.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    fn request(&self, buffer: &[u8]) -> Option<(usize, Vec<String>)> {
        let is_replication = self.is_replication.load(Ordering::Relaxed);
        (!is_replication).then(|| resp::request(buffer)).flatten()
    }

    async fn read_to_end(&self, client: &mut ReadHalf<'_>, buffer: &mut Vec<u8>) {
        while self.read(Direction::ToServer, client, buffer).await {}
        self.client_left.store(true, Ordering::Relaxed);
    }

    fn pass_on(
        &self,
        rule: Option<Rule>,
        args: &[String],
        request: Vec<u8>,
        to_server: &UnboundedSender<Parcel>,
        to_client: &UnboundedSender<Parcel>,
    ) {
        if LOGIN.iter().any(|name| args[0].eq_ignore_ascii_case(name)) {
            self.login.lock().unwrap().push(request.clone());
        }
        let mut copies = vec![Fate::Deliver];
        if let Some(rule) = rule {
            copies = match rule.action() {
                Action::DropReply => vec![Fate::Silence(rule)],
                Action::ExecuteThenCut => vec![Fate::Cut(rule)],
                Action::HoldReply(gate) => vec![Fate::Hold(rule, gate)],
                Action::HoldRequest(gate) => vec![Fate::DeliverPassed(rule, gate)],
                Action::ReplyWith(line) => {
                    vec![Fate::Canned(rule, format!("{line}\r\n").into_bytes())]
                }
                Action::Twice => vec![Fate::Deliver, Fate::Swallow(rule)],
                Action::TwiceLate(gate) => {
                    vec![Fate::DeliverThenReplay(rule, gate, request.clone())]
                }
            };
        }
        let mut bytes = Vec::new();
        for fate in copies {
            if !matches!(fate, Fate::Canned(..)) {
                bytes.extend_from_slice(&request);
            }
            let due = self.answers.lock().unwrap().expect(args, fate);
            self.settle(due, to_client);
        }
        if !bytes.is_empty() {
            // In one piece, so that the server executes both copies before a command of another connection. It
            // would be a repetition long after the answer otherwise. The queue ends only with this connection,
            // and then no party needs the piece.
            let _ = to_server.send(self.piece(Direction::ToServer, bytes));
        }
    }

    async fn read_replies(&self, mut server: ReadHalf<'_>, to_client: UnboundedSender<Parcel>) {
        let mut buffer = Vec::new();
        while self
            .read(Direction::ToClient, &mut server, &mut buffer)
            .await
        {
            if self.is_replication.load(Ordering::Relaxed) {
                let stream = std::mem::take(&mut buffer);
                let _ = to_client.send(self.piece(Direction::ToClient, stream));
            }
            while let Some(reply) = Reply::parse(&buffer) {
                let bytes = buffer.drain(..reply.length).collect();
                let due = self.answers.lock().unwrap().arrived(&reply, bytes);
                self.settle(due, &to_client);
            }
        }
        let _ = to_client.send(Parcel::ServerLeft);
    }

    fn settle(&self, due: Vec<(Vec<u8>, Fate)>, to_client: &UnboundedSender<Parcel>) {
        let send = |parcel| {
            let _ = to_client.send(parcel);
        };
        for (bytes, fate) in due {
            let deliver = |bytes| send(self.piece(Direction::ToClient, bytes));
            match fate {
                Fate::Canned(rule, line) => {
                    rule.hit();
                    deliver(line);
                }
                Fate::Cut(rule) => send(Parcel::Cut(rule)),
                Fate::Deliver => deliver(bytes),
                Fate::DeliverPassed(rule, gate) => {
                    rule.hit();
                    gate.pass(Ok(()));
                    deliver(bytes);
                }
                Fate::DeliverThenReplay(rule, gate, request) => {
                    deliver(bytes);
                    send(Parcel::Replay(rule, gate, request));
                }
                Fate::Hold(rule, gate) => send(Parcel::Held(rule, gate, bytes)),
                Fate::Silence(rule) => send(Parcel::Silence(rule)),
                Fate::Swallow(rule) => rule.hit(),
            }
        }
    }

    fn piece(&self, direction: Direction, bytes: Vec<u8>) -> Parcel {
        Parcel::Bytes(Instant::now() + self.shared.faults.lag(direction), bytes)
    }

    /// Waits for bytes first and looks for a blackhole then, so that a blackhole leaves them unread
    /// in the kernel.
    async fn read(&self, from: Direction, half: &mut ReadHalf<'_>, buffer: &mut Vec<u8>) -> bool {
        loop {
            if half.readable().await.is_err() {
                return false;
            }
            self.shared.faults.healed(from).await;
            match half.try_read_buf(buffer) {
                Ok(length) => return length > 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
    }
}

#[derive(Debug)]
struct Held {
    gate: Gate,
    request: Vec<u8>,
    rule: Rule,
}

const LOGIN: [&str; 3] = ["AUTH", "HELLO", "SELECT"];
