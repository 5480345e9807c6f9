//! Facts, and the counters of samples.

use std::collections::BTreeMap;

use memtrace_model::CgroupId;
use rustc_hash::FxHashMap;

use super::query::Query;
use super::{Recording, totals};
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::interval::{Fact, FactValue, Subject};

/// Returns the facts at a boundary, sorted by topic and item.
pub(super) fn facts(recording: &Recording, at: Boundary) -> Result<Vec<Fact>, Error> {
    let mut facts: BTreeMap<(String, String), FactValue> = BTreeMap::new();
    let sql = "SELECT topic, item, value FROM fact WHERE interval <= ? ORDER BY interval";
    recording.connection.each_row(sql, [at.id], |row| {
        let value = match row.get_ref(2)?.as_i64() {
            Ok(number) => FactValue::Number(number.cast_unsigned()),
            Err(_) => FactValue::Text(row.get(2)?),
        };
        facts.insert((row.get(0)?, row.get(1)?), value);
        Ok(())
    })?;
    let fact =
        |((topic, item), value): ((String, String), FactValue)| Fact { topic: topic.into(), item: item.into(), value };
    Ok(facts.into_iter().map(fact).collect())
}

pub(super) fn counters(recording: &Recording) -> Result<FxHashMap<i64, (Subject, String)>, Error> {
    let images = totals::image_ids(recording)?;
    let mut counters = FxHashMap::default();
    recording.connection.each_row("SELECT id, subject, image, cgroup_id, name FROM counter", [], |row| {
        let kind: String = row.get(1)?;
        let image = row.get::<_, Option<i64>>(2)?.and_then(|id| images.get(&id)).copied();
        let cgroup = row.get::<_, Option<i64>>(3)?.and_then(|id| CgroupId::of(id.cast_unsigned()));
        let subject = match (kind.as_str(), image, cgroup) {
            ("machine", ..) => Subject::Machine,
            ("memtrace", ..) => Subject::Memtrace,
            ("process", Some(image), _) => Subject::Process(image),
            ("cgroup", _, Some(cgroup)) => Subject::Cgroup(cgroup),
            _ => return Err(Error::Damaged(String::from("a counter has an impossible owner"))),
        };
        counters.insert(row.get(0)?, (subject, row.get(4)?));
        Ok(())
    })?;
    Ok(counters)
}
