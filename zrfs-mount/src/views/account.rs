//! What the views of each user take, and may take.

use super::lock;
use crate::errno::Errno;
use std::collections::HashMap;
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

    /// Takes away from what a user has.
    fn give_back(&self, uid: u32, given: Used) {
        let mut users = lock(&self.users);
        let Some(used) = users.get_mut(&uid) else { return };
        used.views = used.views.saturating_sub(given.views);
        used.bytes = used.bytes.saturating_sub(given.bytes);
        if (used.views, used.bytes) == (0, 0) {
            users.remove(&uid);
        }
    }
}

/// The part of a view in what its user has; it goes when it is closed, or with this value.
#[derive(Debug)]
pub(super) struct Account {
    accounts: Arc<Accounts>,
    uid: u32,
    /// `None` once it is closed.
    bytes: Mutex<Option<u64>>,
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
        Ok(Account { accounts: accounts.clone(), uid, bytes: Mutex::new(Some(0)) })
    }

    /// Makes it so many bytes.
    ///
    /// # Errors
    /// `ENOSPC` if the user may not have so much more, `ENOENT` if it is closed.
    pub(super) fn set(&self, bytes: u64) -> Result<(), Errno> {
        let mut users = lock(&self.accounts.users);
        let mut own = lock(&self.bytes);
        let before = own.ok_or(Errno::NOENT)?;
        let used = users.entry(self.uid).or_default();
        let rest = used.bytes.saturating_sub(before);
        if bytes > before && rest.checked_add(bytes).is_none_or(|all| all > self.accounts.limits.memory) {
            return Err(Errno::NOSPC);
        }
        used.bytes = rest + bytes;
        *own = Some(bytes);
        Ok(())
    }

    /// Gives back what it has. It is for nothing any more.
    pub(super) fn close(&self) {
        let bytes = lock(&self.bytes).take();
        if let Some(bytes) = bytes {
            self.accounts.give_back(self.uid, Used { views: 1, bytes });
        }
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
        self.account.accounts.give_back(self.account.uid, Used { views: 0, bytes: self.bytes });
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close();
    }
}
