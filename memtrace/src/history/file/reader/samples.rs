//! Sampled values and facts.

use std::collections::BTreeMap;

use rusqlite::params;
use rustc_hash::FxHashMap;

use super::Recording;
use super::query::Query;
use crate::history::book::Book as _;
use crate::history::boundaries::Boundary;
use crate::history::file::error::Error;
use crate::history::interval::{Fact, FactValue, Subject};
use crate::model::CgroupId;

impl Recording {
    /// Returns the value of each counter at a boundary: that of its last sample.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn samples(&self, at: Boundary) -> Result<BTreeMap<(Subject, String), u64>, Error> {
        let counters = self.counters()?;
        let mut last = FxHashMap::default();
        let sql = "SELECT counter, interval, value FROM sample WHERE interval <= ? ORDER BY interval";
        self.connection.each_row(sql, [at.id], |row| {
            let (counter, interval): (i64, i64) = (row.get(0)?, row.get(1)?);
            last.insert(counter, (interval, counter, row.get::<_, i64>(2)?.cast_unsigned()));
            Ok(())
        })?;
        // A counter with several rows has later samples in the later ones.
        let mut in_order: Vec<_> = last.into_values().collect();
        in_order.sort_unstable();
        let value = |(_, counter, value)| Some((counters.get(&counter)?.clone(), value));
        Ok(in_order.into_iter().filter_map(value).collect())
    }

    /// Returns the samples of a counter in order of time. A sample holds until the next one.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn sample_series(&self, subject: Subject, counter: &str) -> Result<Vec<(Boundary, u64)>, Error> {
        let mut series: BTreeMap<Boundary, u64> = BTreeMap::new();
        let counters = self.counters()?;
        let mut rows: Vec<_> =
            counters.into_iter().filter(|(_, (of, name))| *of == subject && name == counter).collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        for (id, _) in rows {
            let sql = "SELECT interval, value FROM sample WHERE counter = ? AND interval <= ? ORDER BY interval";
            self.connection.each_row(sql, params![id, self.end().id], |row| {
                series.insert(self.boundary_of(row.get(0)?), row.get::<_, i64>(1)?.cast_unsigned());
                Ok(())
            })?;
        }
        Ok(series.into_iter().collect())
    }

    /// Returns the facts at a boundary, in the order of topic and item.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn facts(&self, at: Boundary) -> Result<Vec<Fact>, Error> {
        let mut facts: BTreeMap<(String, String), FactValue> = BTreeMap::new();
        let sql = "SELECT topic, item, value FROM fact WHERE interval <= ? ORDER BY interval";
        self.connection.each_row(sql, [at.id], |row| {
            let value = match row.get_ref(2)?.as_i64() {
                Ok(number) => FactValue::Number(number.cast_unsigned()),
                Err(_) => FactValue::Text(row.get(2)?),
            };
            facts.insert((row.get(0)?, row.get(1)?), value);
            Ok(())
        })?;
        let fact = |((topic, item), value): ((String, String), FactValue)| Fact {
            topic: topic.into(),
            item: item.into(),
            value,
        };
        Ok(facts.into_iter().map(fact).collect())
    }

    pub(super) fn counters(&self) -> Result<FxHashMap<i64, (Subject, String)>, Error> {
        let images = self.image_ids()?;
        let mut counters = FxHashMap::default();
        self.connection.each_row("SELECT id, subject, image, cgroup_id, name FROM counter", [], |row| {
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
}
