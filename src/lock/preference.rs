//! Who goes first in a read/write lock.

/// Who goes first in a [`ReadWriteLock`](crate::ReadWriteLock) if readers hold it and a writer waits.
///
/// # Examples
///
/// ```no_run
/// use lockdog::config::Preference;
///
/// # fn example(client: &lockdog::Client) {
/// let rw = client.read_write_lock("prices").prefer(Preference::Readers);
/// # let _ = rw;
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Preference {
    /// A waiting writer announces itself. New readers then wait until the writer has released the lock, or until
    /// the end of a pause. The first pause is the two seconds after the announcement. The next one takes four
    /// seconds, and each later one eight. A reader contends after the pause in which its call began. So a
    /// continuous stream of readers does not starve a writer, if each of them holds for at most five seconds.
    /// Re-entries do not wait, nor do reads of an owner that writes. Redisson's readers ignore the announcement.
    #[default]
    Writers,
    /// Readers get the lock while others read, as in Redisson. A writer waits until there is a moment without a
    /// reader, which may never come.
    Readers,
}
