//! Command line: `--for 60s`.

use std::time::Duration;

const DEFAULT: Duration = Duration::from_secs(300);

/// Returns the run time of the service, or an error message.
pub(crate) fn time_limit(mut arguments: impl Iterator<Item = String>) -> Result<Duration, String> {
    let limit = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => return Ok(DEFAULT),
        (Some("--for"), Some(limit)) => limit,
        _ => return Err(String::from("usage: demo-service [--for 60s]")),
    };
    let seconds = limit.strip_suffix('s').unwrap_or(&limit).parse();
    seconds.map(Duration::from_secs).map_err(|_| format!("--for needs a number of seconds such as 60s, not {limit:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Duration, String> {
        time_limit(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn run_time_is_limited_by_default() {
        assert_eq!(parse(&[]), Ok(Duration::from_secs(300)));
    }

    #[test]
    fn limit_is_in_seconds() {
        assert_eq!(parse(&["--for", "60s"]), Ok(Duration::from_secs(60)));
        assert_eq!(parse(&["--for", "7"]), Ok(Duration::from_secs(7)));
    }

    #[test]
    fn invalid_arguments_are_errors() {
        assert!(parse(&["--for"]).is_err());
        assert!(parse(&["--for", "soon"]).is_err());
        assert!(parse(&["60s"]).is_err());
    }
}
