//! One node's view of the cluster.

use redis::Value;

use crate::server::wire::text;
use crate::slot::SLOTS;

/// The cluster as one of its nodes sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterView {
    pub(super) nodes: Vec<NodeView>,
}

/// A node as another node, or it itself, sees it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct NodeView {
    pub(super) id: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_self: bool,
    pub(super) is_master: bool,
    /// Most masters think that it has failed.
    pub(super) has_failed: bool,
    /// The id of its master; `-` if it is a master.
    pub(super) follows: String,
    /// The viewing node has a connection to it, or is it.
    pub(super) is_reached: bool,
    /// The config epoch of its claim to its slots. Of two claims, the larger epoch counts.
    pub(super) epoch: u64,
    /// First and last slot of each range.
    pub(super) slots: Vec<(u16, u16)>,
}

impl ClusterView {
    /// Combines the answers to `CLUSTER NODES` and `CLUSTER SLOTS`. The second has the addresses that
    /// clients should use. `asked` is the host that answered, for nodes that do not know their own.
    pub(super) fn new(nodes: &str, slots: Option<&Value>, asked: &str) -> Self {
        let mut nodes: Vec<NodeView> = nodes.lines().filter_map(seen).collect();
        let preferred = slots.map(addresses).unwrap_or_default();
        for node in &mut nodes {
            let known = preferred.iter().find(|(id, ..)| *id == node.id);
            if let Some((_, host, port)) = known {
                if let Some(host) = host {
                    node.host.clone_from(host);
                }
                node.port = *port;
            }
            if node.host.is_empty() {
                asked.clone_into(&mut node.host);
            }
        }
        Self { nodes }
    }

    pub(super) fn find(&self, id: &str) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Whether most masters think that this node has failed.
    pub(super) fn has_failed(&self, id: &str) -> bool {
        self.find(id).is_some_and(|node| node.has_failed)
    }

    /// Whether this node gave the view.
    pub(super) fn is_of(&self, id: &str) -> bool {
        self.find(id).is_some_and(|node| node.is_self)
    }

    /// The masters, with or without slots.
    pub(super) fn masters(&self) -> impl Iterator<Item = &NodeView> {
        self.nodes.iter().filter(|node| node.is_master)
    }
}

/// Parses one line of `CLUSTER NODES`.
fn seen(link: &str) -> Option<NodeView> {
    let mut words = link.split(' ');
    let id = words.next().filter(|id| !id.is_empty())?;
    let address = words.next()?;
    let flags: Vec<&str> = words.next()?.split(',').collect();
    let has = |flag| flags.contains(&flag);
    if has("handshake") || has("noaddr") {
        return None;
    }
    let [master, _ping, _pong, epoch, _link] = [
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
        words.next()?,
    ];
    let address = address.split(['@', ',']).next()?;
    let (host, port) = address.rsplit_once(':')?;
    // A slot that is being moved is in brackets. It belongs to its old owner until the move is
    // complete.
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < SLOTS).then_some((first, last))
    };
    Some(NodeView {
        id: id.to_owned(),
        host: host.to_owned(),
        port: port.parse().ok()?,
        is_self: has("myself"),
        follows: master.to_owned(),
        is_master: has("master"),
        has_failed: has("fail"),
        is_reached: !has("fail") && !has("fail?"),
        epoch: epoch.parse().ok()?,
        slots: words.filter_map(range).collect(),
    })
}

/// Id, host and port of every node in an answer to `CLUSTER SLOTS`. The host is empty if it is the
/// answering node's own, and `None` if it should be a name but none is configured.
fn addresses(slots: &Value) -> Vec<(String, Option<String>, u16)> {
    let Value::Array(ranges) = slots else {
        return Vec::new();
    };
    let nodes = ranges.iter().flat_map(|range| match range {
        Value::Array(parts) => parts.get(2..).unwrap_or_default(),
        _ => &[],
    });
    let address = |node: &Value| {
        let Value::Array(parts) = node else {
            return None;
        };
        let [host, Value::Int(port), id, ..] = parts.as_slice() else {
            return None;
        };
        let host = text(host).unwrap_or_default();
        Some((
            text(id)?.to_owned(),
            (host != "?").then(|| host.to_owned()),
            u16::try_from(*port).ok()?,
        ))
    };
    let mut found: Vec<_> = nodes.filter_map(address).collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
        a1 10.0.0.1:7001@17001,one.example myself,master - 0 0 1 connected 0-5460 7000 [7001->-b2]\n\
        b2 10.0.0.2:7002@17002 master - 0 1 2 connected 5461-6999 7001-10922 [7000-<-a1]\n\
        c3 10.0.0.3:7003@17003,,shard-id=x slave b2 0 1 2 connected\n\
        d4 10.0.0.4:7004@17004 master,fail - 1 1 3 disconnected\n\
        e5 :0@0 master,noaddr - 1 1 4 disconnected 9\n\
        f6 10.0.0.6:7006@17006 handshake - 0 0 0 connected\n\
        \n nonsense\n";

    fn node(host: &str, port: i64, id: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let host = if host.is_empty() {
            Value::Nil
        } else {
            text(host)
        };
        Value::Array(vec![host, Value::Int(port), text(id), Value::Array(vec![])])
    }

    #[test]
    fn nodes_are_read_with_roles_epochs_and_slots() {
        let view = ClusterView::new(NODES, None, "asked");
        let ids: Vec<&str> = view.nodes.iter().map(|node| &*node.id).collect();
        assert_eq!(ids, ["a1", "b2", "c3", "d4"]);
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| &view.nodes[at]);
        assert_eq!((&*a.host, a.port, a.epoch), ("10.0.0.1", 7001, 1));
        assert!(a.is_self && a.is_master && !b.is_self && !c.is_master);
        assert_eq!(a.slots, [(0, 5460), (7000, 7000)]);
        assert_eq!(b.slots, [(5461, 6999), (7001, 10922)]);
        assert!(d.has_failed && !b.has_failed);
        assert_eq!(view.masters().count(), 3);
    }

    #[test]
    fn a_view_uses_the_addresses_that_nodes_announce() {
        let range = |nodes: Vec<Value>| {
            let mut parts = vec![Value::Int(0), Value::Int(1)];
            parts.extend(nodes);
            Value::Array(parts)
        };
        let slots = Value::Array(vec![
            range(vec![node("one.example", 1, "a1"), node("?", 3, "c3")]),
            range(vec![node("", 2, "b2")]),
            Value::Nil,
        ]);
        let view = ClusterView::new(NODES, Some(&slots), "asked");
        let at = |id| view.find(id).map(|it| (&*it.host, it.port)).unwrap();
        assert_eq!(at("a1"), ("one.example", 1));
        assert_eq!(at("b2"), ("asked", 2));
        assert_eq!(at("c3"), ("10.0.0.3", 3));
        assert_eq!(at("d4"), ("10.0.0.4", 7004));
    }
}
