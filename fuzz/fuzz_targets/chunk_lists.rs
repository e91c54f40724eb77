//! Any bytes must be read as chunk lists or be refused. Lists that are read lie within the file and have
//! the length of their file.
#![no_main]

use levada_fetch::ChunkLists;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u32, Vec<u8>)| {
    let (files, length, bytes) = input;
    let files = usize::from(files);
    let head = usize::try_from(ChunkLists::head_length(files)).expect("it is short");
    if let Some(head) = bytes.get(..head)
        && let Ok(places) = ChunkLists::parse(head, files, bytes.len() as u64)
    {
        for file in 0..files {
            let range = places.range(file);
            let range = range.start as usize..range.end as usize;
            if let Ok(list) = ChunkLists::list(&bytes[range], length.into()) {
                assert_eq!(list.iter().map(|chunk| chunk.length).sum::<u32>(), length);
                assert!(list.iter().all(|chunk| (1..=65536).contains(&chunk.length)));
            }
        }
    }
});
