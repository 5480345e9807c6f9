//! Options of `cargo xtask test`: the tier, or the kernels.

use anyhow::Result;

use crate::kernels::{self, Kernel};
use crate::tier::Tier;

/// Returns the kernels of the guest tests of a tier.
pub(super) fn kernels_of(tier: Tier) -> Vec<&'static Kernel> {
    match tier {
        Tier::Short => kernels::default_kernels(),
        Tier::Long => kernels::all(),
    }
}

/// Parsed options.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Tier(Tier),
    /// Only the guest tests on these kernels.
    Kernels(Vec<&'static Kernel>),
}

impl Scope {
    pub(super) fn parse(options: &[String]) -> Result<Self> {
        if let [option] = options
            && option == "--long"
        {
            return Ok(Self::Tier(Tier::Long));
        }
        Ok(kernels::from_options(options)?.map_or(Self::Tier(Tier::Short), Self::Kernels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Result<Scope> {
        Scope::parse(&options.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn short_tier_is_the_default() {
        assert_eq!(parse(&[]).unwrap(), Scope::Tier(Tier::Short));
        assert_eq!(parse(&["--long"]).unwrap(), Scope::Tier(Tier::Long));
    }

    #[test]
    fn kernels_exclude_a_tier() {
        let Scope::Kernels(kernels) = parse(&["--kernels", "6.1"]).unwrap() else { panic!("a list of kernels") };
        assert_eq!(kernels, kernels::default_kernels());
        assert!(parse(&["--long", "--kernels", "6.1"]).is_err());
    }

    #[test]
    fn long_tier_has_all_kernels() {
        assert!(kernels_of(Tier::Long).len() > kernels_of(Tier::Short).len());
    }
}
