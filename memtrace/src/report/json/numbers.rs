//! Fields of numbers, their errors, and the kernel's counters.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::{Amount, Metric, Profile, Residency, ResidentKind, Usage, Variance};
use crate::report::estimate;
use crate::report::kernel_reported::{self, KernelReported};

#[derive(Serialize)]
pub(super) struct Numbers {
    live_bytes: LiveNumber,
    live_count: LiveNumber,
    exit_bytes: u64,
    exit_count: u64,
    alloc_bytes: u64,
    alloc_count: u64,
    free_bytes: u64,
    free_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temporary_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temporary_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_bytes: Option<u64>,
    #[serde(flatten)]
    errors: Option<Errors>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_count: Option<u64>,
}

impl Numbers {
    /// `known` has the kernel's counters for the same owner, which limit the errors.
    pub(super) fn of(profile: &Profile, usage: Usage, variance: Variance, known: Option<KernelReported>) -> Self {
        let errors = Errors::of(profile, &usage, variance, known);
        Self { errors, ..Self::without_errors(profile, usage) }
    }

    pub(super) fn without_errors(profile: &Profile, usage: Usage) -> Self {
        let temporary = profile.class.has(Metric::Temporary).then_some(usage.temporary);
        let stalls = profile.class.counts_stalls().then_some(usage.stalls);
        Self {
            live_bytes: LiveNumber::of(profile, usage.live.bytes.0),
            live_count: LiveNumber::of(profile, usage.live.count),
            exit_bytes: usage.exit.bytes.0,
            exit_count: usage.exit.count,
            alloc_bytes: usage.alloc.bytes.0,
            alloc_count: usage.alloc.count,
            free_bytes: usage.free.bytes.0,
            free_count: usage.free.count,
            temporary_bytes: temporary.map(|amount| amount.bytes.0),
            temporary_count: temporary.map(|amount| amount.count),
            hot_bytes: profile.touches.map(|_| usage.hot.0),
            cold_bytes: profile.touches.map(|_| usage.cold.0),
            errors: None,
            stall_ns: stalls.map(|stalls| stalls.time.0),
            stall_count: stalls.map(|stalls| stalls.count),
        }
    }
}

/// A live number, or its change, which can be negative.
#[derive(Serialize)]
#[serde(untagged)]
enum LiveNumber {
    Total(u64),
    Change(i64),
}

impl LiveNumber {
    const fn of(profile: &Profile, number: u64) -> Self {
        if profile.window.is_some() { Self::Change(number.cast_signed()) } else { Self::Total(number) }
    }
}

/// Errors of estimates.
#[derive(Serialize)]
struct Errors {
    live_error_bytes: u64,
    live_error_count: u64,
    alloc_error_bytes: u64,
    alloc_error_count: u64,
    free_error_bytes: u64,
    free_error_count: u64,
}

impl Errors {
    fn of(profile: &Profile, usage: &Usage, variance: Variance, known: Option<KernelReported>) -> Option<Self> {
        let live = kernel_reported::live_error(known, profile, usage, variance)?;
        let alloc = estimate::error(profile, Metric::AllocCount, usage, variance)?;
        let free = estimate::released_error(profile, Metric::LiveCount, usage, variance)?;
        let [live_error_bytes, alloc_error_bytes, free_error_bytes] =
            [live, alloc, free].map(|n| estimate::size_of_pages(n).0);
        Some(Self {
            live_error_bytes,
            live_error_count: live,
            alloc_error_bytes,
            alloc_error_count: alloc,
            free_error_bytes,
            free_error_count: free,
        })
    }
}

#[derive(Serialize)]
pub(super) struct Blocks {
    count: u64,
    bytes: u64,
}

impl From<Amount> for Blocks {
    fn from(amount: Amount) -> Self {
        Self { count: amount.count, bytes: amount.bytes.0 }
    }
}

/// Counters of the kernel, which are exact.
#[derive(Serialize)]
pub(super) struct Counts {
    resident_bytes: Option<u64>,
    minor_faults: Option<u64>,
    major_faults: Option<u64>,
}

impl From<KernelReported> for Counts {
    fn from(known: KernelReported) -> Self {
        Self {
            resident_bytes: known.resident.map(|bytes| bytes.0),
            minor_faults: known.faults.map(|faults| faults.minor),
            major_faults: known.faults.map(|faults| faults.major),
        }
    }
}

/// Resident memory of a process by kind.
#[derive(Serialize)]
pub(super) struct ResidentFields {
    total_bytes: u64,
    with_stack_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_stack_error_bytes: Option<u64>,
    before_bytes: u64,
}

pub(super) fn resident(profile: &Profile, residence: &Residency) -> BTreeMap<&'static str, ResidentFields> {
    let fields = |resident: &ResidentKind| ResidentFields {
        total_bytes: resident.total.0,
        with_stack_bytes: resident.with_stack.0,
        with_stack_error_bytes: estimate::kind_error(profile, resident).map(|pages| estimate::size_of_pages(pages).0),
        before_bytes: resident.before.0,
    };
    residence.0.iter().map(|(kind, resident)| (kind.name(), fields(resident))).collect()
}
