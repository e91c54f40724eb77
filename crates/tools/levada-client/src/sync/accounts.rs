//! Users and groups. A publisher records numbers and names; a destination uses the number that the name
//! has there, as rsync does.

use std::{collections::HashMap, hash::Hash};

use levada_fetch::manifest::Account;
use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;

/// Whether a number is one of a user or of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AccountKind {
    User,
    Group,
}

/// The accounts of this machine; each is looked up once.
#[derive(Default)]
pub(super) struct Accounts {
    numbers_only: bool,
    names: Cache<(AccountKind, u32), Vec<u8>>,
    numbers: Cache<(AccountKind, Vec<u8>), u32>,
}

type Cache<K, V> = Mutex<HashMap<K, Option<V>>>;

impl Accounts {
    /// With `numbers_only`, names are neither recorded nor used.
    pub(super) fn new(numbers_only: bool) -> Self {
        Self { numbers_only, ..Self::default() }
    }

    /// The account with this number here.
    pub(super) fn account(&self, kind: AccountKind, number: u32) -> Account {
        let find = || match kind {
            AccountKind::User => User::from_uid(Uid::from_raw(number)).ok()?.map(|user| user.name),
            AccountKind::Group => {
                Group::from_gid(Gid::from_raw(number)).ok()?.map(|group| group.name)
            }
        };
        let find = || find().map(String::into_bytes).filter(|name| !name.is_empty());
        let name = if self.numbers_only { None } else { cached(&self.names, (kind, number), find) };
        Account { number, name }
    }

    /// The number here of a publisher's account: that of its name if there is one. Zero is always zero.
    pub(super) fn number(&self, kind: AccountKind, account: &Account) -> u32 {
        let Some(name) = account.name.clone().filter(|_| !self.numbers_only && account.number != 0)
        else {
            return account.number;
        };
        let text = String::from_utf8_lossy(&name).into_owned();
        let find = || match kind {
            AccountKind::User => Some(User::from_name(&text).ok()??.uid.as_raw()),
            AccountKind::Group => Some(Group::from_name(&text).ok()??.gid.as_raw()),
        };
        cached(&self.numbers, (kind, name), find).unwrap_or(account.number)
    }
}

fn cached<K: Eq + Hash, V: Clone>(
    cache: &Cache<K, V>,
    key: K,
    find: impl FnOnce() -> Option<V>,
) -> Option<V> {
    cache.lock().entry(key).or_insert_with(find).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_of_this_machine() {
        let accounts = Accounts::new(false);
        let root = accounts.account(AccountKind::User, 0);
        assert_eq!(root.name.as_deref(), Some(&b"root"[..]));
        let renumbered = Account { number: 4711, name: Some(b"root".to_vec()) };
        assert_eq!(accounts.number(AccountKind::User, &renumbered), 0);
        assert_eq!(Accounts::new(true).number(AccountKind::User, &renumbered), 4711);
        let nobody = Account { number: 4711, name: Some(b"no such user".to_vec()) };
        assert_eq!(accounts.number(AccountKind::User, &nobody), 4711);
        let zero = Account { number: 0, name: Some(b"daemon".to_vec()) };
        assert_eq!(accounts.number(AccountKind::User, &zero), 0);
    }
}
