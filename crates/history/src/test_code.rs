//! Names of generated code in tests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{AbsAddr, CodeNames, GeneratedFunction, Unnamed};

/// Generated code of an image, without files.
#[derive(Debug)]
pub(crate) struct TestCode {
    /// Names by the address of the call.
    pub functions: BTreeMap<AbsAddr, &'static str>,
    /// Reason why other calls have no name.
    pub unnamed: Unnamed,
    pub advice: Vec<String>,
}

impl TestCode {
    /// Returns code without names.
    pub(crate) fn new() -> Self {
        Self { functions: BTreeMap::new(), unnamed: Unnamed::Anonymous, advice: Vec::new() }
    }
}

impl CodeNames for TestCode {
    fn depends_on_time(&self) -> bool {
        false
    }

    fn is_uncertain(&self) -> bool {
        false
    }

    fn find(&mut self, address: AbsAddr, _: Duration) -> GeneratedFunction<'_> {
        let name = self.functions.get(&address).map(|name| Cow::Borrowed(*name)).ok_or(self.unnamed);
        GeneratedFunction { name, finds_caller: true }
    }

    fn count_cut(&mut self) {}

    fn advice(&self) -> Vec<String> {
        self.advice.clone()
    }
}
