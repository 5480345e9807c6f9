//! Identity of a command: under sudo, the user that called sudo.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::mem;
use std::os::unix::ffi::OsStringExt;
use std::ptr;

use super::error::LaunchError;

/// Maximum size of a record of the user database, in bytes.
const MAX_RECORD: usize = 1 << 20;

/// User with groups. It is looked up before the fork, because the child may only make system calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(super) uid: libc::uid_t,
    pub(super) gid: libc::gid_t,
    pub(super) groups: Vec<libc::gid_t>,
    account: Option<Account>,
}

/// Entry of the user database.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    name: CString,
    home: CString,
}

impl Identity {
    /// Returns the user that called sudo; `None` if memtrace does not run as root, if sudo was not used, or if root called it.
    ///
    /// # Errors
    ///
    /// [`LaunchError::BadIdentity`] if the variables of sudo are not numbers. The command must not keep root privileges
    /// because of a typing error in them.
    pub fn of_sudo() -> Result<Option<Self>, LaunchError> {
        // SAFETY: geteuid(2) takes nothing and cannot fail.
        let euid = unsafe { libc::geteuid() };
        let ids = sudo_ids(euid, std::env::var_os("SUDO_UID"), std::env::var_os("SUDO_GID"))?;
        Ok(ids.map(|(uid, gid)| Self::look_up(uid, gid)))
    }

    /// Creates an identity without an entry in the user database.
    #[cfg(test)]
    pub(super) fn of(uid: libc::uid_t, gid: libc::gid_t, groups: &[libc::gid_t]) -> Self {
        Self { uid, gid, groups: groups.to_vec(), account: None }
    }

    fn look_up(uid: libc::uid_t, gid: libc::gid_t) -> Self {
        let account = account(uid);
        let groups = account.as_ref().map_or_else(|| vec![gid], |account| groups(&account.name, gid));
        Self { uid, gid, groups, account }
    }
}

fn sudo_ids(
    euid: libc::uid_t,
    uid: Option<OsString>,
    gid: Option<OsString>,
) -> Result<Option<(libc::uid_t, libc::gid_t)>, LaunchError> {
    let (0, Some(uid)) = (euid, uid) else { return Ok(None) };
    let uid = id("SUDO_UID", uid)?;
    let gid = id("SUDO_GID", gid.unwrap_or_default())?;
    Ok((uid != 0).then_some((uid, gid)))
}

fn id(variable: &'static str, value: OsString) -> Result<u32, LaunchError> {
    // The highest number means "unchanged" in setresuid(2).
    let number = value.to_str().and_then(|text| text.parse().ok()).filter(|&number| number != u32::MAX);
    number.ok_or(LaunchError::BadIdentity { variable, value })
}

/// Returns the environment as `NAME=VALUE`. If the identity has an account, `HOME`, `USER` and `LOGNAME` are replaced.
pub(super) fn environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
    identity: Option<&Identity>,
) -> Vec<OsString> {
    let account = identity.and_then(|identity| identity.account.as_ref());
    let own = account.map(|account| [("HOME", &account.home), ("USER", &account.name), ("LOGNAME", &account.name)]);
    let own: Vec<(OsString, OsString)> = own
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.into(), OsString::from_vec(value.to_bytes().to_vec())))
        .collect();
    let replaced = |name: &OsStr| own.iter().any(|(other, _)| other == name);
    let kept: Vec<_> = variables.filter(|(name, _)| !replaced(name)).collect();
    let join = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        name
    };
    kept.into_iter().chain(own.iter().cloned()).map(join).collect()
}

fn account(uid: libc::uid_t) -> Option<Account> {
    let mut buffer = vec![0; 4096];
    loop {
        // SAFETY: passwd is plain data, and all zeros are a value of it.
        let mut record: libc::passwd = unsafe { mem::zeroed() };
        let mut found = ptr::null_mut();
        let data = buffer.as_mut_ptr();
        // SAFETY: all pointers are valid during the call, and the buffer has the given length.
        let error = unsafe { libc::getpwuid_r(uid, &raw mut record, data, buffer.len(), &raw mut found) };
        match error {
            0 if found.is_null() => return None,
            0 => {
                // SAFETY: the call succeeded, so this is a C string in `buffer`, which is alive.
                let name = unsafe { CStr::from_ptr(record.pw_name) }.to_owned();
                // SAFETY: as above.
                let home = unsafe { CStr::from_ptr(record.pw_dir) }.to_owned();
                return Some(Account { name, home });
            }
            libc::ERANGE if buffer.len() < MAX_RECORD => buffer.resize(buffer.len() * 2, 0),
            libc::EINTR => {}
            _ => return None,
        }
    }
}

/// Returns all groups of the user, including `gid`.
fn groups(name: &CStr, gid: libc::gid_t) -> Vec<libc::gid_t> {
    // The kernel's limit (NGROUPS_MAX, include/uapi/linux/limits.h).
    let mut groups = vec![0; 65536];
    let mut count = 65536;
    // SAFETY: the name is a C string, and `groups` has `count` elements.
    let found = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    let count = if found < 0 { 0 } else { usize::try_from(count).unwrap_or(0) };
    groups.truncate(count);
    if groups.is_empty() { vec![gid] } else { groups }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(euid: u32, uid: Option<&str>, gid: Option<&str>) -> Result<Option<(u32, u32)>, LaunchError> {
        sudo_ids(euid, uid.map(Into::into), gid.map(Into::into))
    }

    #[test]
    fn only_root_under_sudo_has_privileges_to_give_up() {
        assert_eq!(ids(0, Some("1000"), Some("100")).unwrap(), Some((1000, 100)));
        assert_eq!(ids(1000, Some("1000"), Some("100")).unwrap(), None);
        assert_eq!(ids(0, None, None).unwrap(), None);
        assert_eq!(ids(0, Some("0"), Some("0")).unwrap(), None);
    }

    #[test]
    fn malformed_ids_are_errors_and_not_root() {
        for (uid, gid) in
            [("", "1"), ("x", "1"), ("-1", "1"), ("4294967295", "1"), ("4294967296", "1"), ("1", ""), ("1", "y")]
        {
            assert!(matches!(ids(0, Some(uid), Some(gid)), Err(LaunchError::BadIdentity { .. })), "{uid} {gid}");
        }
        assert!(matches!(ids(0, Some("1"), None), Err(LaunchError::BadIdentity { variable: "SUDO_GID", .. })));
    }

    #[test]
    fn the_environment_has_the_users_name_and_home() {
        let account = Account { name: c"ada".into(), home: c"/home/ada".into() };
        let identity = Identity { uid: 1, gid: 1, groups: vec![1], account: Some(account) };
        let variables = [("PATH", "/bin"), ("HOME", "/home/eve"), ("X", "")];
        let variables = || variables.iter().map(|(name, value)| (name.into(), value.into()));
        let expected = ["PATH=/bin", "X=", "HOME=/home/ada", "USER=ada", "LOGNAME=ada"].map(OsString::from);
        assert_eq!(environment(variables(), Some(&identity)), expected);
        assert_eq!(environment(variables(), None), ["PATH=/bin", "HOME=/home/eve", "X="].map(OsString::from));
    }

    #[test]
    fn the_account_of_root_is_found() {
        let root = Identity::look_up(0, 0);
        assert_eq!(root.account.unwrap().name.as_c_str(), c"root");
        assert!(root.groups.contains(&0));
    }

    #[test]
    fn an_unknown_user_has_one_group() {
        let stranger = Identity::look_up(3_999_999_999, 7);
        assert_eq!(stranger, Identity { uid: 3_999_999_999, gid: 7, groups: vec![7], account: None });
    }
}
