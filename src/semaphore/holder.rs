//! Who has permits of a semaphore, as its ledger shows it.

use uuid::Uuid;

/// A request of lockdog that has permits, from [`Semaphore::holders`](crate::Semaphore::holders).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitHolder {
    field: String,
    /// How many permits it has.
    pub permits: u32,
    /// Whether it is a request of this client.
    pub ours: bool,
}

impl PermitHolder {
    pub(super) fn new(field: String, permits: u32, ours: bool) -> Self {
        Self {
            field,
            permits,
            ours,
        }
    }

    /// The name of the request in the ledger: `<client uuid>:<owner>.<hold's number>`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The client of the request: [`Client::id`](crate::Client::id). `None` if the name does not begin with
    /// a UUID.
    pub fn client_id(&self) -> Option<Uuid> {
        let (client, _) = self.field.split_once(':')?;
        Uuid::try_parse(client).ok()
    }
}
