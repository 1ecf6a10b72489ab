//! What the documents point to is there.

use std::fs;
use std::path::Path;

#[test]
fn links_between_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).expect("the folder is there");
    let pages = docs
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"));
    let mut followed = 0;
    for page in pages.chain([root.join("README.md"), root.join("CHANGELOG.md")]) {
        let text = fs::read_to_string(&page).expect("it is text");
        let folder = page.parent().expect("it is in a folder");
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.starts_with("https://") {
                continue;
            }
            followed += 1;
            let there = folder.join(target).exists();
            assert!(there, "{} links to {target}", page.display());
        }
    }
    assert!(followed > 5, "only {followed} links were found");
}
