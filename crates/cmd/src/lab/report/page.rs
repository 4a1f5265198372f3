//! The page, by its template.

use askama::Template;
use protocol::words::nicenum::nicebytes;

use super::chapter::LabReport;

#[derive(Template)]
#[template(path = "lab.html")]
struct LabPage<'a> {
    report: &'a LabReport,
    memory: String,
}

/// The page. Errors, for the user: it cannot be made.
pub fn html(report: &LabReport) -> Result<String, String> {
    let memory = nicebytes(report.machine.memory_bytes);
    LabPage { report, memory }.render().map_err(|e| format!("the report: {e}"))
}
