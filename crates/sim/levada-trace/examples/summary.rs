//! Prints the summary of a trace: `summary FILE`, or `summary rice|ibm [SEED [FILES REQUESTS]]` for
//! a model, or `summary specweb99`.

use std::{env, error::Error};

use levada_trace::{
    Trace, TraceLimits, TraceSummary,
    generate::{GENERATORS, MODELS},
    open,
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let name = words.first().ok_or("name a file, rice, ibm or specweb99")?;
    let trace = if let Some(model) = MODELS.iter().find(|model| model.name == name) {
        let numbers = words[1..].iter().map(|w| w.parse()).collect::<Result<Vec<u64>, _>>()?;
        let seed = numbers.first().copied().unwrap_or(1);
        let model = match numbers.get(1..3) {
            Some(&[files, requests]) => model.scaled(files as usize, requests),
            _ => **model,
        };
        println!("{model:#?}\nfactors {:?}", model.population(seed).band_factors);
        model.generate(seed)
    } else if let Some(generator) = GENERATORS.iter().find(|made| made.name == name) {
        (generator.generate)(1)
    } else {
        let reader = open(name)?;
        println!("format               {}", reader.format().name);
        let (trace, skipped) = Trace::from_reader(reader, &TraceLimits::default());
        println!("{skipped}");
        skipped.examples.iter().for_each(|example| println!("  {example}"));
        trace
    };
    println!("{}", TraceSummary::of(&trace));
    Ok(())
}
