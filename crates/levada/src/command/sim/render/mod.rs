//! Reports as pages with figures; `levada_paper::render` has the other forms.

pub(crate) mod html;
mod plot;
#[cfg(test)]
mod tests;
