//! The description of the API of a fleet is one that other programs can read.

use std::process::Command;

use crate::generated::root;

#[test]
fn description_of_the_api_is_valid_openapi() {
    if levada_skip::lacks_module("openapi_spec_validator", "python3-openapi-spec-validator") {
        return;
    }
    let mut check = Command::new(levada_skip::python("openapi_spec_validator").unwrap());
    check.args(["-m", "openapi_spec_validator", "docs/operate/fleet.openapi.json"]);
    let checked = check.current_dir(root()).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}
