//! Sums in SQL that wrap, as sums in the ledgers do.
//!
//! Targets choose the sizes of their blocks and the weights of their samples, so a sum can exceed 64 bits. In SQLite, `sum` then
//! fails, and `+` returns a floating-point number (sqlite.org/lang_aggfunc.html, sqlite.org/lang_expr.html).

/// Returns an expression for the wrapping sum of an expression over the rows of a group. The high and the low halves are
/// added separately.
pub(super) fn wrapping_sum(value: &str) -> String {
    let (high, low) = (format!("sum({value} >> 32)"), format!("sum({value} & 4294967295)"));
    format!("((({high} + ({low} >> 32)) << 32) | ({low} & 4294967295))")
}

/// Returns an expression for the wrapping sum of two columns.
pub(super) fn wrapping_add(one: &str, other: &str) -> String {
    // All bitwise operators of SQLite have the same precedence, and `+` has a higher precedence.
    let low = format!("(({one} & 4294967295) + ({other} & 4294967295))");
    format!("((({one} >> 32) + ({other} >> 32) + ({low} >> 32)) << 32 | ({low} & 4294967295))")
}

/// Returns an assignment that adds a column of a new row to the column of an existing row.
pub(super) fn add_column(column: &str) -> String {
    format!("{column} = {}", wrapping_add(column, &format!("excluded.{column}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rusqlite::Connection;

    use super::*;

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![any::<i64>(), prop::sample::select(vec![i64::MIN, i64::MAX, -1, 0, 1, 1 << 32, -1 << 32])]
    }

    proptest! {
        #[test]
        fn sums_in_sql_wrap(numbers in prop::collection::vec(number(), 1..20)) {
            let database = Connection::open_in_memory().unwrap();
            database.execute_batch("CREATE TABLE one (id INTEGER PRIMARY KEY, value INTEGER)").unwrap();
            let insert = format!("INSERT INTO one VALUES (?, ?) ON CONFLICT DO UPDATE SET {}", add_column("value"));
            for (number, nth) in numbers.iter().zip(1..) {
                // All numbers are added in row 0. The other rows have one number each.
                for id in [0, nth] {
                    database.execute(&insert, [id, *number]).unwrap();
                }
            }
            let expected = numbers.iter().fold(0_i64, |sum, number| sum.wrapping_add(*number));
            let read = |sql: &str| database.query_one(sql, [], |row| row.get::<_, i64>(0)).unwrap();
            prop_assert_eq!(read("SELECT value FROM one WHERE id = 0"), expected);
            prop_assert_eq!(read(&format!("SELECT {} FROM one WHERE id > 0", wrapping_sum("value"))), expected);
        }
    }
}
