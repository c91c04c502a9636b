//! `cargo xtask dashboards`: the pictures in `docs/dashboards`. The scene of the tests runs once
//! more, longer. A real Prometheus scrapes it, and its answers to every panel's query are drawn
//! here. Grafana itself is in no package registry: the layout, queries, units and legends are the
//! dashboards' own, the drawing is not.

use std::{collections::BTreeMap, env, fs};

use anyhow::Context;
use serde_json::Value;

use crate::draw::axis::AxisScale;
use crate::draw::chart::{ChartLine, LineChart, LineStyle};
use crate::draw::stat_panel::{StatPanel, TablePanel};
use crate::draw::svg::{PictureArea, SvgPicture, TextAnchor, TextStyle};
use crate::draw::unit::ValueUnit;
use crate::draw::{INK, PALE};
use crate::run::{root, target_dir};
use crate::test;

/// The dashboards, in the order of their use.
const BOARDS: [&str; 4] = ["overview", "upstream", "tool", "client"];
/// The width of a column: a picture has Grafana's 24 columns.
const COLUMN: f64 = 60.0;
const ROW: f64 = 34.0;
const HEAD: f64 = 62.0;
const GAP: f64 = 6.0;

/// Runs the scene, queries Prometheus for every panel, and draws the answers.
pub(crate) fn run() -> anyhow::Result<()> {
    let data = target_dir()?.join("dashboards.json");
    if env::var_os("WEIR_DASHBOARDS_AGAIN").is_none() {
        test::run_scene("every_panel_shows_something", "WEIR_DASHBOARDS", &data)?;
    }
    let data: Value = serde_json::from_str(
        &fs::read_to_string(&data).context("the scene left nothing to draw")?,
    )?;
    let folder = root()?.join("docs/dashboards");
    fs::create_dir_all(&folder)?;
    for name in BOARDS {
        let board = serde_json::from_str(&fs::read_to_string(
            root()?.join(format!("deploy/grafana/{name}.json")),
        )?)?;
        fs::write(
            folder.join(format!("{name}.svg")),
            DashboardScene::new(&data, name)?.picture(&board),
        )?;
    }
    Ok(())
}

/// The answers of Prometheus for one dashboard.
struct DashboardScene<'a> {
    panels: BTreeMap<u64, &'a [Value]>,
    begin: f64,
    end: f64,
    broken: f64,
}

impl<'a> DashboardScene<'a> {
    fn new(data: &'a Value, name: &str) -> anyhow::Result<Self> {
        let board = list(&data["boards"])
            .iter()
            .find(|board| board["board"] == name);
        let panels = list(&board.with_context(|| format!("nothing of {name}"))?["panels"]);
        let panels = panels.iter().map(|panel| {
            (
                panel["panel"].as_u64().unwrap_or_default(),
                list(&panel["targets"]),
            )
        });
        let time = |key: &str| data[key].as_f64().with_context(|| format!("no time {key}"));
        Ok(Self {
            panels: panels.collect(),
            begin: time("begin")?,
            end: time("end")?,
            broken: time("broken")?,
        })
    }

    fn picture(&self, board: &Value) -> String {
        let panels = list(&board["panels"]);
        let place = |panel: &Value, key: &str| panel["gridPos"][key].as_f64().unwrap_or_default();
        let bottom = panels
            .iter()
            .map(|panel| place(panel, "y") + place(panel, "h"))
            .fold(0.0, f64::max);
        let title = text(board, "title");
        let width = COLUMN * 24.0 + 2.0 * GAP;
        let mut picture = SvgPicture::new(width, HEAD + bottom * ROW + GAP, title);
        picture.text(
            14.0,
            27.0,
            title,
            TextStyle {
                size: 20.0,
                colour: INK,
                weight: "700",
                anchor: TextAnchor::Start,
                max_width: 800.0,
            },
        );
        picture.text(
            14.0,
            48.0,
            text(board, "description"),
            TextStyle {
                size: 12.5,
                colour: PALE,
                weight: "400",
                anchor: TextAnchor::Start,
                max_width: 1400.0,
            },
        );
        for panel in panels {
            let area = PictureArea {
                x: GAP + place(panel, "x") * COLUMN,
                y: HEAD + place(panel, "y") * ROW,
                width: place(panel, "w") * COLUMN,
                height: place(panel, "h") * ROW,
            };
            self.panel(&mut picture, panel, area.inside([GAP / 2.0; 4]));
        }
        picture.finish()
    }

    fn panel(&self, picture: &mut SvgPicture, panel: &Value, area: PictureArea) {
        let title = text(panel, "title");
        let targets = panel["id"]
            .as_u64()
            .and_then(|id| self.panels.get(&id).copied())
            .unwrap_or_default();
        match text(panel, "type") {
            "row" => {
                let title = title.replace('$', "");
                picture.text(
                    area.x + 4.0,
                    area.bottom() - 8.0,
                    &title,
                    TextStyle {
                        size: 14.0,
                        colour: INK,
                        weight: "600",
                        anchor: TextAnchor::Start,
                        max_width: area.width,
                    },
                );
            }
            "stat" => self.figure(panel, targets).draw(picture, area),
            "table" => table(panel, targets).draw(picture, area),
            _ => self.chart(panel, targets).draw(picture, area),
        }
    }

    fn chart<'b>(&self, panel: &'b Value, targets: &[Value]) -> LineChart<'b> {
        let settings = &panel["fieldConfig"]["defaults"];
        let custom = &settings["custom"];
        let style = match (
            text(custom, "drawStyle"),
            text(&custom["stacking"], "mode"),
            text(custom, "lineInterpolation"),
        ) {
            ("bars", ..) => LineStyle::Bars,
            (_, "normal", _) => LineStyle::Stacked,
            (.., "stepAfter") => LineStyle::Steps,
            _ => LineStyle::Lines,
        };
        let begin = self.begin;
        let below = (0..=6).map(|part| {
            let at = (self.end - begin) / 6.0 * f64::from(part);
            (begin + at, format!("{at:.0} s"))
        });
        LineChart {
            title: text(panel, "title"),
            unit: ValueUnit::named(text(settings, "unit")),
            style,
            below: below.collect(),
            scale: AxisScale::Even,
            most: settings["max"].as_f64(),
            mark: Some((self.broken, "faults begin")),
            lines: lines(targets),
        }
    }

    fn figure<'b>(&self, panel: &'b Value, targets: &[Value]) -> StatPanel<'b> {
        let settings = &panel["fieldConfig"]["defaults"];
        let before = lines(targets)
            .into_iter()
            .next()
            .map(|line| line.points)
            .unwrap_or_default();
        let last = before
            .iter()
            .rev()
            .map(|(_, y)| *y)
            .find(|y| y.is_finite())
            .unwrap_or(f64::NAN);
        let word = list(&settings["mappings"])
            .first()
            .and_then(|map| map["options"][format!("{last:.0}")]["text"].as_str());
        let mut steps = list(&settings["thresholds"]["steps"]).iter();
        let reached = steps.rfind(|step| step["value"].as_f64().is_none_or(|from| last >= from));
        StatPanel {
            title: text(panel, "title"),
            shown_value: word.map_or_else(
                || ValueUnit::named(text(settings, "unit")).render(last),
                str::to_owned,
            ),
            colour: reached.map_or("blue", |step| text(step, "color")),
            before,
        }
    }
}

/// The lines of all targets, named by their legends.
fn lines(targets: &[Value]) -> Vec<ChartLine> {
    let all = targets.iter().flat_map(|target| {
        list(&target["series"])
            .iter()
            .map(move |series| (target, series))
    });
    all.map(|(target, series)| ChartLine {
        name: named(text(target, "legend"), &series["metric"]),
        points: points(series),
    })
    .collect()
}

fn points(series: &Value) -> Vec<(f64, f64)> {
    let number = |value: &Value| {
        value
            .as_f64()
            .or_else(|| value.as_str()?.parse().ok())
            .unwrap_or(f64::NAN)
    };
    list(&series["values"])
        .iter()
        .map(|pair| (number(&pair[0]), number(&pair[1])))
        .collect()
}

/// Fills the labels into a legend; those that a series does not have are empty.
fn named(legend: &str, labels: &Value) -> String {
    let mut parts = legend.split("{{");
    let mut name = parts.next().unwrap_or_default().to_owned();
    for (label, rest) in parts.filter_map(|part| part.split_once("}}")) {
        name += labels[label].as_str().unwrap_or_default();
        name += rest;
    }
    name.replace("()", "").trim().to_owned()
}

/// A table of the targets' last values, a row for each set of labels.
fn table<'a>(panel: &'a Value, targets: &[Value]) -> TablePanel<'a> {
    let mut rows: BTreeMap<Vec<(String, String)>, Vec<f64>> = BTreeMap::new();
    for (number, target) in targets.iter().enumerate() {
        for series in list(&target["series"]) {
            let labels = series["metric"].as_object().into_iter().flatten();
            let key = labels
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect();
            let row = rows
                .entry(key)
                .or_insert_with(|| vec![f64::NAN; targets.len()]);
            row[number] = points(series).last().map_or(f64::NAN, |(_, value)| *value);
        }
    }
    let units: Vec<ValueUnit> = list(&panel["fieldConfig"]["overrides"])
        .iter()
        .map(|one| ValueUnit::named(one["properties"][0]["value"].as_str().unwrap_or_default()))
        .collect();
    let labels = rows
        .keys()
        .map(|key| key.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>())
        .max_by_key(Vec::len);
    let labels = labels.unwrap_or_default();
    let values = list(&panel["fieldConfig"]["overrides"])
        .iter()
        .map(|one| text(&one["matcher"], "options").to_owned());
    TablePanel {
        title: text(panel, "title"),
        heads: labels.iter().cloned().chain(values).collect(),
        rows: rows
            .iter()
            .map(|(key, values)| {
                let word = |label: &String| {
                    key.iter()
                        .find(|(name, _)| name == label)
                        .map(|(_, value)| value.clone())
                        .unwrap_or_default()
                };
                let said = values
                    .iter()
                    .zip(&units)
                    .map(|(value, unit)| unit.render(*value));
                labels.iter().map(word).chain(said).collect()
            })
            .collect(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_legend_is_filled_in_by_labels() {
        assert_eq!(
            named(
                "{{upstream}}/{{tool}}",
                &json!({ "upstream": "files", "tool": "read" })
            ),
            "files/read"
        );
        assert_eq!(named("p99", &json!({})), "p99");
        assert_eq!(
            named("{{kind}} ({{era}})", &json!({ "kind": "tools" })),
            "tools"
        );
    }

    #[test]
    fn a_table_has_a_row_for_each_set_of_labels() {
        let panel = json!({ "title": "t", "fieldConfig": { "overrides": [
            { "matcher": { "options": "Calls" }, "properties": [{ "value": "none" }] },
            { "matcher": { "options": "p99" }, "properties": [{ "value": "s" }] },
        ] } });
        let series = |tool: &str, value: &str| json!({ "metric": { "tool": tool }, "values": [[1, "9"], [2, value]] });
        let targets = [
            json!({ "series": [series("a", "1"), series("b", "2")] }),
            json!({ "series": [series("a", "0.5")] }),
        ];
        let table = table(&panel, &targets);
        assert_eq!(table.heads, ["tool", "Calls", "p99"]);
        assert_eq!(table.rows, [["a", "1", "500 ms"], ["b", "2", "-"]]);
    }
}
