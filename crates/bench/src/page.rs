//! The page of a report: one HTML file with its style, its script and all rows. It loads nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use persistent_gemm::files::{command_line, now};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::results::Collection;

/// The frame of the page, with places for the other parts.
const FRAME: &str = include_str!("page/page.html");

/// The version of the rows that the script reads.
const SCHEMA: u32 = 2;

/// How the page came about.
#[derive(Serialize)]
struct Made {
    date: String,
    version: &'static str,
    command: Vec<String>,
}

#[derive(Serialize)]
struct Data<'c> {
    schema: u32,
    made: Made,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'c str>,
    #[serde(flatten)]
    rows: Map<String, Value>,
}

/// Objects as a table, which names each field once: `fields`, those that most objects have first,
/// and for each object a list of their values, without the nulls at its end.
fn table(objects: Vec<Map<String, Value>>) -> Value {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for field in objects.iter().flat_map(Map::keys) {
        *counts.entry(field.clone()).or_default() += 1;
    }
    let mut fields: Vec<(String, usize)> = counts.into_iter().collect();
    fields.sort_by_key(|(_, count)| Reverse(*count));
    let fields: Vec<String> = fields.into_iter().map(|(field, _)| field).collect();
    let rows = objects.into_iter().map(|mut object| {
        let mut row: Vec<Value> =
            fields.iter().map(|field| object.remove(field).unwrap_or_default()).collect();
        while row.pop_if(|value| value.is_null()).is_some() {}
        row
    });
    json!({ "rows": rows.collect::<Vec<_>>(), "fields": fields })
}

impl Collection {
    /// The page that shows these rows, made by this process.
    ///
    /// # Errors
    /// A row has no JSON form.
    pub fn page(&self, title: Option<&str>) -> serde_json::Result<String> {
        let made =
            Made { date: now(), version: env!("CARGO_PKG_VERSION"), command: command_line() };
        let Value::Object(mut rows) = serde_json::to_value(self)? else {
            return Err(serde::ser::Error::custom("a collection is an object"));
        };
        if let Some(Value::Array(problems)) = rows.remove("problems") {
            let objects = problems.into_iter().filter_map(|problem| match problem {
                Value::Object(fields) => Some(fields),
                _ => None,
            });
            rows.insert("problems".to_owned(), table(objects.collect()));
        }
        let data = serde_json::to_string(&Data { schema: SCHEMA, made, title, rows })?;
        // No text in the data can end the element that holds it.
        let data = data.replace('<', "\\u003c");
        let page = FRAME.replacen("/*STYLE*/", include_str!("page/page.css"), 1);
        let page = page.replacen("/*SCRIPT*/", include_str!("page/page.js"), 1);
        Ok(page.replacen("/*DATA*/", &data, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{ComparisonRow, Run};

    #[test]
    fn the_frame_has_each_place_once() {
        for place in ["/*STYLE*/", "/*SCRIPT*/", "/*DATA*/"] {
            assert_eq!(FRAME.matches(place).count(), 1, "{place}");
        }
        // What is filled in before the data must not name the data's place.
        for part in [include_str!("page/page.css"), include_str!("page/page.js")] {
            assert!(!part.contains("/*DATA*/") && !part.contains("</script"));
        }
    }

    #[test]
    fn data_cannot_end_its_element() {
        let mut rows = Collection::default();
        let hostile = "</script><script>alert(1)</script>";
        rows.runs.push(Run { name: hostile.into(), ..Run::default() });
        let page = rows.page(Some(hostile)).unwrap();
        assert!(!page.contains("<script>alert") && page.contains("\\u003c/script>"));
        // Its elements are those of the frame.
        assert_eq!(page.matches("</script>").count(), FRAME.matches("</script>").count());
    }

    #[test]
    fn tables_have_each_field_once_and_no_nulls_at_the_end() {
        let objects = [json!({"a": 1, "c": "x"}), json!({"a": 2, "b": [null]}), json!({"c": "y"})];
        let objects = objects.map(|object| object.as_object().unwrap().clone());
        let rows = json!([[1, "x"], [2, null, [null]], [null, "y"]]);
        assert_eq!(table(objects.to_vec()), json!({"fields": ["a", "c", "b"], "rows": rows}));
        assert_eq!(table(vec![]), json!({"fields": [], "rows": []}));
    }

    #[test]
    fn numbers_that_json_lacks_are_null() {
        let mut rows = Collection::default();
        let ratio = [1.0, f64::NAN, f64::INFINITY];
        let (kind, problem) = ("launch".into(), "p".into());
        rows.comparisons.push(ComparisonRow {
            run: 0,
            kind,
            problem,
            old_us: 1.0,
            new_us: 1.0,
            ratio,
        });
        assert!(rows.page(None).unwrap().contains("[1.0,null,null]"));
    }
}
