//! Servers, limits and cache of the search for debug files.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cache_directory;
use crate::target_files::open_target_file;

/// Directory of `.urls` files with URLs of servers. Packages install these files.
const LISTS: &str = "/etc/debuginfod";

/// Default of `DEBUGINFOD_TIMEOUT`, as in elfutils.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Default of `DEBUGINFOD_MAXSIZE` in bytes: about the size of the largest debug files of distributions. elfutils has
/// no default.
const MAX_SIZE: u64 = 4 << 30;

/// Choice of servers by the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// The servers in `DEBUGINFOD_URLS`; none if the variable is not set.
    #[default]
    Environment,
    /// The servers in `DEBUGINFOD_URLS`, or in `/etc/debuginfod/*.urls` if the variable is unset or empty. An empty
    /// list is an error.
    Known,
    /// The servers with these URLs, separated by blanks. An empty list is an error.
    Urls(String),
    /// No server, even if `DEBUGINFOD_URLS` is set.
    None,
}

/// Settings of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// URLs of the servers, with the scheme `http` or `https`.
    pub servers: Vec<String>,
    pub(super) cache: PathBuf,
    /// User id of the cache's owner.
    pub(super) user: u32,
    /// Time limit for each step of a request, and for each 100 KiB of a download.
    pub(super) timeout: Duration,
    /// Size limit of a file in bytes.
    pub(super) max_size: u64,
}

/// Reason why debug files cannot be searched.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(
        "no debuginfod server is known: DEBUGINFOD_URLS is not set, and /etc/debuginfod has no list; give \
         --debuginfod=URL"
    )]
    NoServer,
    #[error("{0} is not the URL of a debuginfod server: it begins with neither http:// nor https://")]
    BadUrl(String),
    #[error("no cache directory for debug files: set HOME or DEBUGINFOD_CACHE_PATH")]
    NoCache,
}

impl Settings {
    /// Returns the settings of `user`'s environment, or `None` if no server is to be contacted. `variable` returns the
    /// value of an environment variable.
    pub fn read(
        servers: &Servers,
        user: u32,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, SettingsError> {
        let text = |name| variable(name).and_then(|value| value.into_string().ok()).unwrap_or_default();
        let urls = match servers {
            Servers::None => return Ok(None),
            Servers::Environment => text("DEBUGINFOD_URLS"),
            Servers::Known => Some(text("DEBUGINFOD_URLS"))
                .filter(|urls| !urls.trim().is_empty())
                .unwrap_or_else(|| listed(Path::new(LISTS))),
            Servers::Urls(urls) => urls.clone(),
        };
        let servers_of_urls = parse(&urls)?;
        if servers_of_urls.is_empty() {
            return if *servers == Servers::Environment { Ok(None) } else { Err(SettingsError::NoServer) };
        }
        let cache = variable("DEBUGINFOD_CACHE_PATH")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .or_else(|| Some(cache_directory::base_directory(&variable)?.join("debuginfod_client")))
            .ok_or(SettingsError::NoCache)?;
        let number = |name| text(name).parse().ok().filter(|&number: &u64| number > 0);
        Ok(Some(Self {
            servers: servers_of_urls,
            cache,
            user,
            timeout: number("DEBUGINFOD_TIMEOUT").map_or(TIMEOUT, Duration::from_secs),
            max_size: number("DEBUGINFOD_MAXSIZE").unwrap_or(MAX_SIZE),
        }))
    }
}

/// Splits `urls` at blanks. Removes the slashes at the end of each URL.
fn parse(urls: &str) -> Result<Vec<String>, SettingsError> {
    // elfutils allows words such as `ima:enforcing` in the list, which apply to the servers after them.
    let words = urls.split_whitespace().filter(|word| !word.starts_with("ima:"));
    let url = |word: &str| match ["http://", "https://"].iter().any(|scheme| word.starts_with(scheme)) {
        true => Ok(word.trim_end_matches('/').to_owned()),
        false => Err(SettingsError::BadUrl(word.to_owned())),
    };
    words.map(url).collect()
}

/// Joins the `.urls` files in `directory` ordered by name, as the profile scripts of elfutils do.
fn listed(directory: &Path) -> String {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|name| name == "urls")).collect();
    paths.sort();
    let read = |path: &PathBuf| io::read_to_string(open_target_file(path)?);
    paths.iter().filter_map(|path| read(path).ok()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(servers: &Servers, variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        Settings::read(servers, 7, variable).map_err(|error| error.to_string())
    }

    fn servers(servers: &Servers, urls: &str) -> Option<Vec<String>> {
        let variables = [("DEBUGINFOD_URLS", urls), ("HOME", "/home/a")];
        read(servers, &variables).unwrap().map(|settings| settings.servers)
    }

    #[test]
    fn no_server_is_used_without_consent() {
        assert_eq!(read(&Servers::Environment, &[("HOME", "/home/a")]), Ok(None));
        assert_eq!(servers(&Servers::Environment, "  "), None);
        assert_eq!(servers(&Servers::None, "http://a"), None);
    }

    #[test]
    fn the_option_precedes_the_variable() {
        assert_eq!(
            servers(&Servers::Environment, "http://a/  https://b"),
            Some(vec!["http://a".into(), "https://b".into()])
        );
        assert_eq!(servers(&Servers::Known, "http://a"), Some(vec!["http://a".into()]));
        assert_eq!(servers(&Servers::Urls("http://c".into()), "http://a"), Some(vec!["http://c".into()]));
        assert_eq!(servers(&Servers::Environment, "ima:enforcing http://a"), Some(vec!["http://a".into()]));
    }

    #[test]
    fn unusable_servers_are_refused() {
        assert!(read(&Servers::Urls("ftp://a".into()), &[]).unwrap_err().starts_with("ftp://a is not the URL"));
        assert!(read(&Servers::Urls(" ".into()), &[]).unwrap_err().starts_with("no debuginfod server is known"));
    }

    #[test]
    fn lists_of_servers_are_joined() {
        let directory = std::env::temp_dir().join(format!("memtrace-debuginfod-lists-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        for (name, content) in [("b.urls", "http://b\n"), ("a.urls", "http://a"), ("c.text", "http://c")] {
            fs::write(directory.join(name), content).unwrap();
        }
        let urls = listed(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(parse(&urls).unwrap(), ["http://a", "http://b"]);
        assert_eq!(listed(&directory), "");
    }

    #[test]
    fn cache_and_limits_follow_elfutils() {
        let urls = ("DEBUGINFOD_URLS", "http://a");
        let settings = |variables: &[(&str, &str)]| read(&Servers::Environment, variables).unwrap().unwrap();
        let default = settings(&[urls, ("HOME", "/home/a")]);
        assert_eq!(default.cache, Path::new("/home/a/.cache/debuginfod_client"));
        assert_eq!((default.timeout, default.max_size), (Duration::from_secs(90), 4 << 30));
        let xdg = settings(&[urls, ("HOME", "/home/a"), ("XDG_CACHE_HOME", "/cache")]);
        assert_eq!(xdg.cache, Path::new("/cache/debuginfod_client"));
        let own = [urls, ("HOME", "/home/a"), ("DEBUGINFOD_CACHE_PATH", "/d"), ("DEBUGINFOD_TIMEOUT", "3")];
        assert_eq!((settings(&own).cache, settings(&own).timeout), ("/d".into(), Duration::from_secs(3)));
        assert_eq!(settings(&[urls, ("HOME", "/a"), ("DEBUGINFOD_MAXSIZE", "17")]).max_size, 17);
        assert!(read(&Servers::Environment, &[urls]).unwrap_err().starts_with("no cache directory"));
    }
}
