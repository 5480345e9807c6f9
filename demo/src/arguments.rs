//! `--for 60s`, and nothing else.

use std::time::Duration;

const DEFAULT: Duration = Duration::from_secs(300);

/// How long the service may run.
///
/// # Errors
///
/// What is wrong with the arguments, for the user.
pub(crate) fn time_limit(mut arguments: impl Iterator<Item = String>) -> Result<Duration, String> {
    let limit = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => return Ok(DEFAULT),
        (Some("--for"), Some(limit)) => limit,
        _ => return Err(String::from("usage: demo-service [--for 60s]")),
    };
    let seconds = limit.strip_suffix('s').unwrap_or(&limit).parse();
    seconds.map(Duration::from_secs).map_err(|_| format!("--for wants a number of seconds like 60s, not {limit:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Duration, String> {
        time_limit(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn the_service_ends_by_itself_even_when_nobody_says_when() {
        assert_eq!(parse(&[]), Ok(Duration::from_secs(300)));
    }

    #[test]
    fn the_limit_is_in_seconds() {
        assert_eq!(parse(&["--for", "60s"]), Ok(Duration::from_secs(60)));
        assert_eq!(parse(&["--for", "7"]), Ok(Duration::from_secs(7)));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(parse(&["--for"]).is_err());
        assert!(parse(&["--for", "soon"]).is_err());
        assert!(parse(&["60s"]).is_err());
    }
}
