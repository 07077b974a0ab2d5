//! Lines: a colour per engine, and marks that differ, so that a print without colours can be read.

use super::axis::Axis;
use super::bars::style;
use super::words::{ABOVE, Words};
use crate::Result;
use crate::summary::Unit;
use crate::table::tick;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

const WIDTH: u32 = 860;
const HEIGHT: i32 = ABOVE + 420;
const LEFT: i32 = 80;
const RIGHT: i32 = 600;
const TOP: i32 = ABOVE + 16;
const BOTTOM: i32 = ABOVE + 370;
const LEGEND: i32 = 625;

/// Told apart by most eyes (after Okabe and Ito).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(150, 110, 0),
    RGBColor(40, 40, 40),
    RGBColor(230, 159, 0),
    RGBColor(130, 80, 200),
];

/// One line: its points, from left to right.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) label: String,
    /// Lines of one group have one colour.
    pub(crate) group: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How a line looks: the number of its colour, and of its mark, which no other line of that colour has, and no line of the
/// next colours that is the first of its own.
type Look = (usize, usize);

fn looks(lines: &[Line]) -> Vec<Look> {
    let mut groups: Vec<(&str, usize)> = Vec::new();
    let mut looks = Vec::new();
    for line in lines {
        let known = groups.iter().position(|(group, _)| *group == line.group);
        let colour = known.unwrap_or_else(|| {
            groups.push((&line.group, 0));
            groups.len() - 1
        });
        looks.push((colour, colour + groups[colour].1));
        groups[colour].1 += 1;
    }
    looks
}

/// A picture's canvas.
type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The picture; the text of the ticks on the lower axis is the caller's. `None` if there is nothing to draw.
pub(crate) fn draw(
    words: Words,
    lines: &[Line],
    ticks: &[(f64, String)],
    across: &str,
    unit: Unit,
) -> Result<Option<String>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let horizontal =
        Axis::over(points().map(|point| point.0).chain(ticks.iter().map(|tick| tick.0)), LEFT, RIGHT);
    let vertical = Axis::over(points().map(|point| point.1), BOTTOM, TOP);
    let (Some(horizontal), Some(vertical)) = (horizontal, vertical) else { return Ok(None) };
    let mut svg = String::new();
    {
        let size = (WIDTH, u32::try_from(HEIGHT + words.below())?);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        words.draw(&root, HEIGHT)?;
        for value in vertical.gridlines() {
            let y = vertical.pixel(value);
            root.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], BLACK.mix(0.15)))?;
            root.draw(&Text::new(tick(unit, value), (LEFT - 8, y), style(HPos::Right, VPos::Center, 0.6)))?;
        }
        for (value, text) in ticks {
            let x = horizontal.pixel(*value);
            root.draw(&PathElement::new([(x, BOTTOM), (x, BOTTOM + 5)], BLACK.mix(0.5)))?;
            root.draw(&Text::new(text.clone(), (x, BOTTOM + 10), style(HPos::Center, VPos::Top, 0.6)))?;
        }
        let middle = (LEFT + RIGHT) / 2;
        root.draw(&Text::new(
            across.to_string(),
            (middle, BOTTOM + 30),
            style(HPos::Center, VPos::Top, 1.0),
        ))?;
        for (index, (line, look)) in lines.iter().zip(looks(lines)).enumerate() {
            let pixels: Vec<(i32, i32)> = line
                .points
                .iter()
                .map(|point| (horizontal.pixel(point.0), vertical.pixel(point.1)))
                .collect();
            draw_line(&root, look, &pixels)?;
            let y = TOP + 10 + 20 * i32::try_from(index)?;
            draw_line(&root, look, &[(LEGEND, y), (LEGEND + 24, y)])?;
            root.draw(&Text::new(
                line.label.clone(),
                (LEGEND + 34, y),
                style(HPos::Left, VPos::Center, 1.0),
            ))?;
        }
        root.present()?;
    }
    Ok(Some(svg))
}

fn draw_line(root: &Canvas<'_>, (colour, mark): Look, pixels: &[(i32, i32)]) -> Result<()> {
    let colour = COLOURS[colour % COLOURS.len()];
    root.draw(&PathElement::new(pixels.to_vec(), colour.stroke_width(2)))?;
    for &at in pixels {
        // Filled, then hollow.
        let paint = if mark % 8 < 4 { colour.filled() } else { colour.stroke_width(2) };
        match mark % 4 {
            1 if !paint.filled => {
                let (x, y) = at;
                root.draw(&PathElement::new(
                    [(x - 5, y + 4), (x + 5, y + 4), (x, y - 6), (x - 5, y + 4)],
                    paint,
                ))?;
            }
            0 => root.draw(&Circle::new(at, 4, paint))?,
            1 => root.draw(&TriangleMarker::new(at, 5, paint))?,
            2 => root.draw(&Rectangle::new([(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)], paint))?,
            _ if paint.filled => root.draw(&Cross::new(at, 4, colour.stroke_width(2)))?,
            _ => root.draw(&PathElement::new([(at.0, at.1 - 6), (at.0, at.1 + 6)], paint))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_of_an_engine_share_its_colour_and_no_two_lines_look_alike() {
        let line = |group: &str| Line { label: String::new(), group: group.into(), points: Vec::new() };
        let lines = ["redis", "file", "redis", "etcd", "redis"].map(line);
        assert_eq!(looks(&lines), [(0, 0), (1, 1), (0, 1), (2, 2), (0, 2)]);
    }
}
