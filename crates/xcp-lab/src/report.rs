use crate::result::*;
pub struct ReportInput<'a> {
    pub about: &'a str,
    pub source: &'a str,
    pub capacity_bps: f64,
    pub result: &'a RunResult,
    pub series: &'a [(String, Series)],
}
pub fn render(_i: &ReportInput) -> Result<String, std::fmt::Error> {
    Ok(String::new())
}
