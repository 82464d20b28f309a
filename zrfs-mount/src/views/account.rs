//! What the views of each user take, and may take.

use super::lock;
use crate::errno::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What the views of one user may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of slabs and indices, and of what gathers take while they last.
    pub memory: u64,
    /// Their number.
    pub views: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { memory: 1 << 30, views: 64 }
    }
}

/// What users have.
#[derive(Debug)]
pub(super) struct Accounts {
    pub(super) limits: Limits,
    users: Mutex<HashMap<u32, Used>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Used {
    views: u64,
    bytes: u64,
}

impl Accounts {
    /// Nobody has anything yet.
    pub(super) fn new(limits: Limits) -> Arc<Accounts> {
        Arc::new(Accounts { limits, users: Mutex::default() })
    }

    /// The views and the bytes of all users.
    pub(super) fn total(&self) -> (u64, u64) {
        let users = lock(&self.users);
        users.values().fold((0, 0), |(views, bytes), used| (views + used.views, bytes + used.bytes))
    }
}

/// The part of a view in what its user has; it goes with this value.
#[derive(Debug)]
pub(super) struct Account {
    accounts: Arc<Accounts>,
    uid: u32,
    bytes: AtomicU64,
}

impl Account {
    /// Counts a new view of the user.
    ///
    /// # Errors
    /// `EMFILE` if there are too many.
    pub(super) fn open(accounts: &Arc<Accounts>, uid: u32) -> Result<Account, Errno> {
        let mut users = lock(&accounts.users);
        let used = users.entry(uid).or_default();
        if used.views >= accounts.limits.views {
            return Err(Errno::MFILE);
        }
        used.views += 1;
        Ok(Account { accounts: accounts.clone(), uid, bytes: AtomicU64::new(0) })
    }

    /// Makes it so many bytes.
    ///
    /// # Errors
    /// `ENOSPC` if the user may not have so much more.
    pub(super) fn set(&self, bytes: u64) -> Result<(), Errno> {
        let mut users = lock(&self.accounts.users);
        let used = users.entry(self.uid).or_default();
        // Changed with the lock alone.
        let before = self.bytes.load(Ordering::Relaxed);
        let rest = used.bytes.saturating_sub(before);
        if bytes > before && rest.checked_add(bytes).is_none_or(|all| all > self.accounts.limits.memory) {
            return Err(Errno::NOSPC);
        }
        used.bytes = rest + bytes;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts nothing yet, for what a call takes while it lasts.
    pub(super) fn loan(&self) -> Loan<'_> {
        Loan { account: self, bytes: 0 }
    }
}

/// What a call takes beside what its view has; it is given back with this value.
#[derive(Debug)]
pub struct Loan<'v> {
    account: &'v Account,
    bytes: u64,
}

impl Loan<'_> {
    /// Counts so many bytes more.
    ///
    /// # Errors
    /// `ENOSPC` if the user may not have so much more.
    pub fn take(&mut self, bytes: u64) -> Result<(), Errno> {
        let accounts = &self.account.accounts;
        let mut users = lock(&accounts.users);
        let used = users.entry(self.account.uid).or_default();
        let all = used.bytes.checked_add(bytes).filter(|&all| all <= accounts.limits.memory);
        used.bytes = all.ok_or(Errno::NOSPC)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut users = lock(&self.account.accounts.users);
        if let Some(used) = users.get_mut(&self.account.uid) {
            used.bytes = used.bytes.saturating_sub(self.bytes);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut users = lock(&self.accounts.users);
        if let Some(used) = users.get_mut(&self.uid) {
            used.bytes = used.bytes.saturating_sub(self.bytes.load(Ordering::Relaxed));
            used.views = used.views.saturating_sub(1);
            if used.views == 0 {
                users.remove(&self.uid);
            }
        }
    }
}
