//! From events to books: what joins the decoded events of all rings into one picture of the system.

pub mod registry;
