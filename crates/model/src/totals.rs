//! Totals and their keys.

mod account;
mod account_column;
mod account_keys;
mod account_table;
mod amount;
mod block_histograms;
mod calls_by_size;
mod demotion;
mod group_by;
mod part;

pub use account::{AccountCounters, AccountNumber, AccountTotals, AmountBounds, MarkBounds};
pub use account_column::AccountColumn;
pub use account_keys::AccountKeys;
pub use account_table::{AccountInterval, AccountRow, AccountTable};
pub use amount::Amount;
pub use block_histograms::{BlockHistograms, BlockQuantity, Log2};
pub use calls_by_size::CallsBySize;
pub use demotion::Demotion;
pub use group_by::GroupBy;
pub use part::{AllocatorId, Part, PartKey, PartKeys, TagId};
