//! Draws a flame graph of folded stacks, as an SVG that a browser shows. Pure.

use std::{collections::BTreeMap, fmt::Write};

/// The picture's width, and the height of a frame, in pixels.
const WIDTH: f64 = 1_600.0;
const HEIGHT: usize = 16;

/// A frame that is thinner is left out, with all above it.
const THIN: f64 = 0.4;

/// The width of a letter, about: a name is cut to what fits.
const LETTER: f64 = 6.6;

/// The room above the frames, for the title.
const HEAD: usize = 28;

/// A function that was called from one place.
#[derive(Default)]
struct Frame<'t> {
    samples: u64,
    calls: BTreeMap<&'t str, Frame<'t>>,
}

impl Frame<'_> {
    fn depth(&self, width: f64) -> usize {
        let wide = |frame: &&Self| width * frame.share_of(self) >= THIN;
        let calls = self.calls.values().filter(wide);
        let deepest = calls.map(|call| call.depth(width * call.share_of(self)));
        1 + deepest.max().unwrap_or_default()
    }

    fn share_of(&self, whole: &Self) -> f64 {
        self.samples as f64 / whole.samples.max(1) as f64
    }
}

/// The picture: who calls stands below whom, as wide as its share of all samples.
pub(super) fn svg(title: &str, folded: &str) -> String {
    let mut root = Frame::default();
    for line in folded.lines() {
        let Some((stack, samples)) = line.rsplit_once(' ') else {
            continue;
        };
        let samples = samples.parse::<u64>().unwrap_or_default();
        root.samples += samples;
        let mut at = &mut root;
        for name in stack.split(';') {
            at = at.calls.entry(name).or_default();
            at.samples += samples;
        }
    }
    let depth = root.depth(WIDTH);
    let height = HEAD + depth * HEIGHT;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"11\">\n<text x=\"4\" y=\"18\">{}: {} samples</text>\n",
        escaped(title),
        root.samples
    );
    let place = Place {
        left: 0.0,
        width: WIDTH,
        level: 0,
    };
    draw("all", &root, place, depth, root.samples, &mut picture);
    picture.push_str("</svg>\n");
    picture
}

/// The rectangle of a frame.
#[derive(Clone, Copy)]
struct Place {
    left: f64,
    width: f64,
    /// 0 is the lowest.
    level: usize,
}

fn draw(name: &str, frame: &Frame<'_>, at: Place, depth: usize, all: u64, picture: &mut String) {
    let top = HEAD + (depth - 1 - at.level) * HEIGHT;
    let letters = ((at.width - 4.0) / LETTER).max(0.0) as usize;
    let shown: String = name.chars().take(letters).collect();
    let percent = frame.samples as f64 * 100.0 / all.max(1) as f64;
    // Writing to a string cannot fail.
    let _ = writeln!(
        picture,
        "<g><title>{} ({:.2} %)</title><rect x=\"{:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" \
         rx=\"1\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{}\">{}</text></g>",
        escaped(name),
        percent,
        at.left,
        (at.width - 0.5).max(0.1),
        HEIGHT - 1,
        colour(name),
        at.left + 2.0,
        top + 12,
        escaped(&shown),
    );
    let mut left = at.left;
    for (name, call) in &frame.calls {
        let width = at.width * call.share_of(frame);
        if width >= THIN {
            let level = at.level + 1;
            let at = Place { left, width, level };
            draw(name, call, at, depth, all, picture);
        }
        left += width;
    }
}

/// Returns a warm colour, always the same for a name.
fn colour(name: &str) -> String {
    let sum = name
        .bytes()
        .fold(7_u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(byte));
    format!("hsl({},80%,{}%)", 10 + sum % 45, 62 + (sum >> 8) % 14)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_wide_as_its_share() {
        let picture = svg("a < b", "main;work<T> 3\nmain;rest 1\nmain;thin 0\n");
        assert!(picture.contains("a &lt; b: 4 samples"));
        assert!(picture.contains("<title>work&lt;T&gt; (75.00 %)</title>"));
        assert!(picture.contains("<title>main (100.00 %)</title>"));
        // The calls of one frame stand side by side: `rest`, then `work`, a quarter from the left.
        assert!(picture.contains("x=\"400.0\" y=\"28\" width=\"1199.5\""));
        assert!(!picture.contains("thin"));
        assert_eq!(picture.matches("<rect").count(), 4);
    }

    #[test]
    fn a_flame_graph_without_samples_is_empty() {
        assert!(svg("none", "").contains("0 samples"));
    }
}
