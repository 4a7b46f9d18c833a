//! Draws a layout as SVG on standard output. With two arguments it draws the thread-value layout
//! that they define as thread layout and value layout.
//!
//! `cargo run -p pgemm-cute --example draw -- "Sw<3,0,3> o 0 o (8,8):(8,1)" > swizzle.svg`

use std::error::Error;

use pgemm_cute::{AnyLayout, Layout, TvLayout, svg};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    let layout = match arguments.as_slice() {
        [layout] => AnyLayout::parse(layout)?,
        [threads, values] => {
            let (threads, values) = (Layout::parse(threads)?, Layout::parse(values)?);
            TvLayout::from_threads_and_values(&threads, &values)?.into()
        }
        _ => return Err("usage: draw LAYOUT, or draw THREADS VALUES".into()),
    };
    print!("{}", svg::draw(&layout, &svg::Options::default())?);
    Ok(())
}
