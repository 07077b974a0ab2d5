//! Bars: one per engine, the longer the more.

use super::axis::Axis;
use super::words::{ABOVE, Words};
use crate::Result;
use crate::summary::Unit;
use crate::table::{show, tick};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 860;
const ROW: i32 = 26;
const LEFT: i32 = 200;
const RIGHT: i32 = 760;
const TOP: i32 = ABOVE + 34;

/// One bar.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// The ends of its spread.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// A raw floor's is drawn pale.
    pub(crate) is_floor: bool,
}

/// The picture; `None` if there is nothing to draw.
pub(crate) fn draw(words: Words, bars: &[Bar], unit: Unit, colour: RGBColor) -> Result<Option<String>> {
    let values = bars.iter().flat_map(|bar| [bar.value, bar.low, bar.high]);
    let Some(axis) = Axis::over(values, LEFT, RIGHT) else { return Ok(None) };
    let height = TOP + ROW * i32::try_from(bars.len())? + 12;
    let mut svg = String::new();
    {
        let size = (WIDTH, u32::try_from(height + words.below())?);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        words.draw(&root, height)?;
        for value in axis.gridlines() {
            let x = axis.pixel(value);
            root.draw(&PathElement::new([(x, TOP - 8), (x, height - 8)], BLACK.mix(0.15)))?;
            root.draw(&Text::new(tick(unit, value), (x, ABOVE + 4), style(HPos::Center, VPos::Top, 0.6)))?;
        }
        for (row, bar) in (0_i32..).zip(bars) {
            let (top, middle) = (TOP + row * ROW, TOP + row * ROW + ROW / 2 - 2);
            let fill = if bar.is_floor { BLACK.mix(0.25) } else { colour.mix(1.0) };
            let end = axis.pixel(bar.value).max(LEFT + 1);
            root.draw(&Text::new(
                bar.label.clone(),
                (LEFT - 8, middle),
                style(HPos::Right, VPos::Center, 1.0),
            ))?;
            root.draw(&Rectangle::new([(LEFT, top + 3), (end, top + ROW - 7)], fill.filled()))?;
            let (low, high) = (axis.pixel(bar.low), axis.pixel(bar.high));
            root.draw(&PathElement::new([(low, middle), (high, middle)], BLACK.stroke_width(1)))?;
            for x in [low, high] {
                root.draw(&PathElement::new([(x, middle - 3), (x, middle + 3)], BLACK.stroke_width(1)))?;
            }
            let text = show(unit, bar.value);
            let at = (end.max(high) + 6, middle);
            root.draw(&Text::new(text, at, style(HPos::Left, VPos::Center, 1.0)))?;
        }
        root.present()?;
    }
    Ok(Some(svg))
}

/// Text beside the bars.
pub(crate) fn style(horizontal: HPos, vertical: VPos, strength: f64) -> TextStyle<'static> {
    let mut style = TextStyle::from(("sans-serif", 15).into_font()).pos(Pos::new(horizontal, vertical));
    style.color = BLACK.mix(strength).to_backend_color();
    style
}
