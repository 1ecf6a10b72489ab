//! The processes below one.

use std::fs;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};

/// A process. Its number may be used again, but not together with its start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Process {
    pid: Pid,
    /// When it was found.
    stat: Stat,
}

impl Process {
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it still runs: a process that only waits to be reaped does not.
    pub(super) fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.began == self.stat.began && stat.state != 'Z')
    }

    /// Whether none of these started it.
    pub(super) fn is_first_of(&self, all: &[Self]) -> bool {
        let is_parent = |it: &Self| it.pid.as_raw_nonzero().get() == self.stat.parent;
        !all.iter().any(is_parent)
    }
}

/// All processes below this one.
pub(super) fn of(root: Pid) -> Vec<Process> {
    // Much faster than to read all processes, so that few start meanwhile. Some kernels do not list them.
    if children(getpid()).is_some() {
        return below(root, |parent| {
            let pids = children(parent).unwrap_or_default().into_iter();
            pids.filter_map(|pid| Some((pid, Stat::of(pid)?))).collect()
        });
    }
    let all = all();
    below(root, |parent| {
        let is_child = |(_, stat): &&(Pid, Stat)| stat.parent == parent.as_raw_nonzero().get();
        all.iter().filter(is_child).copied().collect()
    })
}

fn below(root: Pid, children: impl Fn(Pid) -> Vec<(Pid, Stat)>) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (pid, stat) in children(parent) {
            let process = Process { pid, stat };
            if !found.contains(&process) {
                found.push(process);
                parents.push(pid);
            }
        }
    }
    found
}

/// The children of all threads of a process. `None`: the process is gone, or the kernel does not list them.
fn children(parent: Pid) -> Option<Vec<Pid>> {
    let threads = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())).ok()?;
    let mut all = Vec::new();
    for thread in threads {
        let listed = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        let pids = listed.split_whitespace();
        all.extend(pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Some(all)
}

/// The processes below this one that run in its session and in another group than this one, as timeout(1) and the jobs
/// of a shell do. What was in the group of this process before is none of them.
pub(super) fn outside(group: Pid) -> Vec<Process> {
    let Some(own) = Stat::of(getpid()) else {
        return Vec::new();
    };
    let groups = [own.group, group.as_raw_nonzero().get()];
    let mut outside = in_session();
    outside.retain(|process| !groups.contains(&process.stat.group));
    outside
}

/// The processes below this one that run in its session.
pub(super) fn in_session() -> Vec<Process> {
    let Some(own) = Stat::of(getpid()) else {
        return Vec::new();
    };
    let mut found = of(getpid());
    found.retain(|Process { stat, .. }| stat.session == own.session && stat.state != 'Z');
    found
}

/// Reaps the children of this process that have ended, except this one. A process that lost its parent is a child of
/// the nearest subreaper, and no other process can wait for it. Until then it counts as a process of the user.
pub(super) fn reap(except: Pid) {
    // Some kernels do not list them.
    for child in children(getpid()).unwrap_or_default() {
        if child != except {
            // It may still run.
            let _ = waitpid(Some(child), WaitOptions::NOHANG);
        }
    }
}

/// Whether a process of this group still runs. One that only waits to be reaped does not: a container may have
/// no process that reaps it.
pub(super) fn is_group_alive(group: Pid) -> bool {
    let group = group.as_raw_nonzero().get();
    let all = all();
    all.iter()
        .any(|(_, stat)| stat.group == group && stat.state != 'Z')
}

/// Empty if the kernel does not list them.
fn all() -> Vec<(Pid, Stat)> {
    let Ok(folders) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = folders.filter_map(|folder| {
        let name = folder.ok()?.file_name();
        Pid::from_raw(name.to_str()?.parse().ok()?)
    });
    pids.filter_map(|pid| Some((pid, Stat::of(pid)?))).collect()
}

/// What `/proc/<pid>/stat` says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stat {
    state: char,
    parent: i32,
    group: i32,
    session: i32,
    began: u64,
}

impl Stat {
    fn of(pid: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(&text)
    }

    /// The program's name is in parentheses and may have some of its own.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(") ")?;
        let mut words = rest.split(' ');
        let state = words.next()?.chars().next()?;
        let parent = words.next()?.parse().ok()?;
        let group = words.next()?.parse().ok()?;
        let session = words.next()?.parse().ok()?;
        let began = words.nth(15)?.parse().ok()?;
        Some(Self {
            state,
            parent,
            group,
            session,
            began,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_look_like_the_rest() {
        let text = "17 (a) S 1 (b) S 42 43 17 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2 3\n";
        let stat = Stat::parse(text).expect("it is whole");
        assert_eq!((stat.state, stat.parent, stat.group), ('S', 42, 43));
        assert_eq!((stat.session, stat.began), (17, 98_765));
        assert!(Stat::parse("17 (a) S 42").is_none());
    }

    #[test]
    fn a_child_of_a_child_is_found() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut started = [0];
        let stdout = shell.stdout.as_mut().expect("it is piped");
        std::io::Read::read_exact(stdout, &mut started).expect("it says a line");
        let below = of(getpid());
        assert!(below.len() >= 2, "{below:?}");
        for process in &below {
            let _ = rustix::process::kill_process(process.pid(), rustix::process::Signal::KILL);
        }
        shell.wait().expect("it is our child");
    }

    #[test]
    fn the_first_processes_are_those_that_no_other_one_started() {
        let process = |pid, parent| {
            let (group, session, began) = (5, 1, 0);
            let stat = Stat {
                state: 'S',
                parent,
                group,
                session,
                began,
            };
            let pid = Pid::from_raw(pid).expect("it is a pid");
            Process { pid, stat }
        };
        let all = [process(6, 5), process(5, 4), process(8, 4)];
        let firsts = all.each_ref().map(|it| it.is_first_of(&all));
        assert_eq!(firsts, [false, true, true]);
    }
}
