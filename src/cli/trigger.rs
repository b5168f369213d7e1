use super::context::Context;
use std::process::ExitCode;
#[derive(Debug, clap::Args)]
pub(super) struct Trigger {}
impl Trigger {
    pub(super) async fn run(self, _: &Context) -> anyhow::Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}
