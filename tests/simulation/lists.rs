//! The commands of a simulated server about one list.

use super::keys::{Answer, Reply, arg};

/// Only what the scripts use.
pub(super) fn call(items: &mut Vec<String>, name: &str, args: &[String]) -> Answer {
    let at = |i: usize, items: &[String]| -> Result<Option<usize>, String> {
        let at: i64 = arg(args, i)?
            .parse()
            .map_err(|_| "ERR an index".to_owned())?;
        let at = if at < 0 { at + items.len() as i64 } else { at };
        Ok(usize::try_from(at).ok())
    };
    Ok(match name {
        "llen" => Reply::Int(items.len() as i64),
        "lindex" => {
            let item = at(2, items)?.and_then(|at| items.get(at));
            item.map_or(Reply::Nil, |item| Reply::Bulk(item.clone()))
        }
        // All of them.
        "lrange" => Reply::List(items.clone()),
        "lpush" => {
            items.insert(0, arg(args, 2)?.to_owned());
            Reply::Int(items.len() as i64)
        }
        "rpush" => {
            items.push(arg(args, 2)?.to_owned());
            Reply::Int(items.len() as i64)
        }
        "lpop" if items.is_empty() => Reply::Nil,
        "lpop" => Reply::Bulk(items.remove(0)),
        // The first one, or all of them.
        "lrem" => {
            let item = arg(args, 3)?;
            let before = items.len();
            match (arg(args, 2)?, items.iter().position(|it| it == item)) {
                (_, None) => {}
                ("1", Some(first)) => drop(items.remove(first)),
                _ => items.retain(|it| it != item),
            }
            Reply::Int((before - items.len()) as i64)
        }
        other => return Err(format!("ERR unknown command '{other}'")),
    })
}
