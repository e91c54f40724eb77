//! Zones and tables from files.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use levada_types::hash64;

use crate::{
    World,
    dnssec::{Signatures, ZoneKeys},
    redirect::{Redirects, Steering},
    route::{DeepZones, Federations, Geo, GeoRegions, Regions, Tables, coverage_zones},
    wire::{Name, name::suffixes},
    zone::{Node, Routed, Routing, Zone, ZoneFile, Zones},
};

/// The files of a server, and what belongs to them.
#[derive(Clone, Debug, Default)]
pub struct WorldSource {
    /// The zones.
    pub zones: Vec<ZoneSource>,
    /// The hosts of sites.
    pub hosts: Vec<Name>,
    /// Names whose clients are sent on to other names.
    pub steering: Vec<Steering>,
    /// The regions of the nodes.
    pub regions: Vec<Arc<str>>,
    /// The region of clients that no table has; without it the first one.
    pub default_region: Option<String>,
    /// For a region the ones that are asked when none of its nodes can be.
    pub fallback: BTreeMap<String, Vec<String>>,
    /// Files of Traffic Control.
    pub coverage: Option<PathBuf>,
    /// Likewise.
    pub deep: Option<PathBuf>,
    /// Likewise.
    pub federations: Option<PathBuf>,
    /// A database of addresses, and the regions of its countries and continents.
    pub geo: Option<(PathBuf, GeoRegions)>,
    /// The directory of keys.
    pub keys: Option<PathBuf>,
}

/// A zone, or all zones of a directory.
#[derive(Clone, Debug)]
pub struct ZoneSource {
    /// Its name, and its zone file.
    pub files: ZoneFiles,
    /// Names that are routed, relative to the zone.
    pub names: Vec<String>,
    /// Whether hosts of sites are routed.
    pub sites: bool,
    /// Names that are routed over HTTP, relative to the zone.
    pub redirects: Vec<String>,
    /// How they are answered.
    pub routing: Routing,
    /// Whether it is signed.
    pub signed: bool,
}

/// Zone files.
#[derive(Clone, Debug)]
pub enum ZoneFiles {
    /// One.
    One(Name, PathBuf),
    /// All of a directory, `NAME.zone` each.
    Directory(PathBuf),
}

/// The part of a source that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A zone, by its number in the source.
    Zone(usize),
    /// A name with targets, by its number in the source.
    Steering(usize),
    /// The default region.
    DefaultRegion,
    /// The regions that stand in.
    Fallback,
    /// The coverage zones.
    Coverage,
    /// The deep coverage zones.
    Deep,
    /// The federations.
    Federations,
    /// The database.
    Geo,
}

/// A world that was read.
pub struct Loaded {
    /// Zones and tables.
    pub world: Arc<World>,
    /// A number that differs when a file or the source does.
    pub version: u64,
    /// Things that are hardly meant.
    pub warnings: Vec<(Place, String)>,
}

/// All that is wrong, with its place.
pub type Wrong = Vec<(Place, String)>;

impl WorldSource {
    /// Reads all files.
    ///
    /// # Errors
    /// With all that is wrong.
    pub fn load(&self) -> Result<Loaded, Wrong> {
        let mut loading =
            Loading { version: hash64(format!("{self:?}").as_bytes()), wrong: Vec::new() };
        let tables = self.tables(&mut loading);
        let (zones, redirected) = self.zones(&tables, &mut loading);
        let redirects = self.redirects(&redirected, &mut loading);
        if !loading.wrong.is_empty() {
            return Err(loading.wrong);
        }
        let warnings = self.warnings(&tables);
        let version = loading.version;
        Ok(Loaded { world: Arc::new(World { zones, tables, redirects }), version, warnings })
    }

    fn tables(&self, loading: &mut Loading) -> Tables {
        let mut regions = Regions::new(self.regions.iter().map(|region| &**region));
        let mut tables = Tables::default();
        if let Some(text) = loading.read(Place::Coverage, &self.coverage) {
            let zones = coverage_zones(&text, &mut regions);
            tables.coverage =
                loading.good(Place::Coverage, &self.coverage, zones).unwrap_or_default();
        }
        if let Some(text) = loading.read(Place::Deep, &self.deep) {
            tables.deep =
                loading.good(Place::Deep, &self.deep, DeepZones::read(&text)).unwrap_or_default();
        }
        if let Some(text) = loading.read(Place::Federations, &self.federations) {
            let federations = Federations::read(&text);
            tables.federations = loading
                .good(Place::Federations, &self.federations, federations)
                .unwrap_or_default();
        }
        if let Some((file, of)) = &self.geo {
            let file = Some(file.clone());
            if let Some(content) = loading.read(Place::Geo, &file) {
                let networks = Geo::read(content, of, &mut regions);
                tables.geo = loading.good(Place::Geo, &file, networks).unwrap_or_default();
            }
        }
        let region = |name: &str, place, loading: &mut Loading| {
            let known = regions.find(name);
            if known.is_none() {
                let all: Vec<_> = regions.names().map(|name| &**name).collect();
                let message = format!(
                    "no `[[peer]]` is of the region {name:?}; there is: {}",
                    all.join(", ")
                );
                loading.wrong.push((place, message));
            }
            known.unwrap_or_default()
        };
        if let Some(name) = &self.default_region {
            tables.default_region = region(name, Place::DefaultRegion, loading);
        }
        let mut stated: HashMap<u16, Vec<u16>> = HashMap::new();
        for (name, others) in &self.fallback {
            let own = region(name, Place::Fallback, loading);
            let others = others.iter().map(|name| region(name, Place::Fallback, loading)).collect();
            stated.insert(own, others);
        }
        let all = || 0..regions.len() as u16;
        let order = |own: u16| {
            let others = stated.get(&own).into_iter().flatten().copied();
            let mut order = Vec::new();
            for region in
                std::iter::once(own).chain(others).chain([tables.default_region]).chain(all())
            {
                if !order.contains(&region) && usize::from(region) < regions.len() {
                    order.push(region);
                }
            }
            order
        };
        tables.fallbacks = all().map(order).collect();
        tables.regions = regions;
        tables
    }

    /// The zones, and the names that are routed over HTTP.
    fn zones(&self, tables: &Tables, loading: &mut Loading) -> (Zones, Vec<Name>) {
        let found = self.zone_files(loading);
        let mut hosts: HashMap<&[u8], Vec<&Name>> = HashMap::new();
        {
            let apexes: std::collections::HashSet<&[u8]> =
                found.iter().map(|(_, apex, _)| apex.wire()).collect();
            for host in &self.hosts {
                if let Some(apex) = suffixes(host.wire()).find_map(|suffix| apexes.get(suffix)) {
                    hosts.entry(apex).or_default().push(host);
                }
            }
        }
        let (mut zones, signatures) = (Zones::default(), Arc::new(Signatures::default()));
        let mut redirects = Vec::new();
        for (number, apex, file) in &found {
            let source = &self.zones[*number];
            let place = Place::Zone(*number);
            let of_sites = hosts.get(apex.wire()).filter(|_| source.sites);
            let hosts = of_sites.map_or(&[][..], |hosts| hosts);
            let zone = self.zone(
                (source, apex, file),
                hosts,
                (tables, &signatures),
                &mut redirects,
                loading,
            );
            match zone {
                Ok(zone) => {
                    if !zones.add(zone) {
                        loading.wrong.push((place, format!("the zone {apex} is there already")));
                    }
                }
                Err(message) => loading.wrong.push((place, message)),
            }
        }
        (zones, redirects)
    }

    fn zone(
        &self,
        (source, apex, file): (&ZoneSource, &Name, &Path),
        hosts: &[&Name],
        (tables, signatures): (&Tables, &Arc<Signatures>),
        redirects: &mut Vec<Name>,
        loading: &mut Loading,
    ) -> Result<Zone, String> {
        let text =
            fs::read(file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
        loading.sees(&text);
        let records = ZoneFile { path: file, text: &text }
            .records(apex)
            .map_err(|error| error.to_string())?;
        let routed = |name: Name, stated| Routed {
            federation: tables.federations.service(&name, apex),
            name,
            stated,
            of_node: false,
        };
        let (mut routes, known) = (Vec::new(), redirects.len());
        for name in &source.names {
            let name = apex.below(name).map_err(|error| error.to_string())?;
            routes.push(routed(name, true));
        }
        routes.extend(hosts.iter().map(|host| routed((*host).clone(), false)));
        for name in &source.redirects {
            // Every node has a name next to it.
            let name = apex.below(name).map_err(|error| error.to_string())?;
            let star = name.star_beside().filter(|_| name != *apex);
            let star = star.ok_or_else(|| {
                format!("{name} has no label in the place of which a node could be named")
            })?;
            routes.push(Routed { name: star, federation: None, stated: true, of_node: true });
            redirects.push(name);
        }
        let keys = self.keys.as_ref().filter(|_| source.signed).map(|keys| {
            let file = keys.join(format!("{apex}.pem"));
            loading.sees(&fs::read(&file).unwrap_or_default());
            ZoneKeys::read(&file, signatures).map(Arc::new).map_err(|error| error.to_string())
        });
        let zone =
            Zone::new(apex.clone(), records, routes, source.routing.clone(), keys.transpose()?);
        let zone = zone.map_err(|error| format!("{} {error}", file.display()))?;
        for name in &redirects[known..] {
            if !zone.node(name.wire()).is_some_and(Node::has_addresses) {
                return Err(format!(
                    "{} has no addresses for {name}: write those of the name servers, which redirect its clients",
                    file.display()
                ));
            }
        }
        Ok(zone)
    }

    /// The names that are routed over HTTP.
    fn redirects(&self, names: &[Name], loading: &mut Loading) -> Redirects {
        let mut redirects = Redirects::new(names.iter().map(ToString::to_string));
        for (number, steering) in self.steering.iter().enumerate() {
            // The targets of a zone that cannot be read are not known.
            let are_known = !loading.wrong.iter().any(|(place, _)| matches!(place, Place::Zone(_)));
            if let Err(message) = redirects.steer(steering)
                && are_known
            {
                loading.wrong.push((Place::Steering(number), message));
            }
        }
        redirects
    }

    /// The name and the file of each zone, with the number of its source.
    fn zone_files(&self, loading: &mut Loading) -> Vec<(usize, Name, PathBuf)> {
        let mut found = Vec::new();
        for (number, source) in self.zones.iter().enumerate() {
            match &source.files {
                ZoneFiles::One(name, file) => found.push((number, name.clone(), file.clone())),
                ZoneFiles::Directory(directory) => match in_directory(directory) {
                    Ok(zones) => {
                        found.extend(zones.into_iter().map(|(name, file)| (number, name, file)))
                    }
                    Err(message) => loading.wrong.push((Place::Zone(number), message)),
                },
            }
        }
        found
    }

    fn warnings(&self, tables: &Tables) -> Vec<(Place, String)> {
        let empty = tables.regions.names().skip(self.regions.len());
        let names: Vec<_> = empty.map(|name| &**name).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let message =
            format!("no `[[peer]]` is of {}: their clients go to other regions", names.join(", "));
        let place = if self.coverage.is_some() { Place::Coverage } else { Place::Geo };
        vec![(place, message)]
    }
}

struct Loading {
    version: u64,
    wrong: Wrong,
}

impl Loading {
    /// Counts a file's content.
    fn sees(&mut self, content: &[u8]) {
        let mut both = [0; 16];
        both[..8].copy_from_slice(&self.version.to_be_bytes());
        both[8..].copy_from_slice(&hash64(content).to_be_bytes());
        self.version = hash64(&both);
    }

    fn read(&mut self, place: Place, file: &Option<PathBuf>) -> Option<Vec<u8>> {
        let file = file.as_ref()?;
        let content =
            fs::read(file).map_err(|why| format!("cannot read {}: {why}", file.display()));
        let content = content.map_err(|message| self.wrong.push((place, message))).ok()?;
        self.sees(&content);
        Some(content)
    }

    fn good<T>(
        &mut self,
        place: Place,
        file: &Option<PathBuf>,
        read: Result<T, impl std::error::Error>,
    ) -> Option<T> {
        let name = file.as_ref().map_or_else(String::new, |file| file.display().to_string());
        read.map_err(|error| self.wrong.push((place, format!("{name}: {error}")))).ok()
    }
}

/// The zones of a directory in the order of their names.
fn in_directory(directory: &Path) -> Result<Vec<(Name, PathBuf)>, String> {
    let unreadable =
        |why: io::Error| format!("cannot read the directory {}: {why}", directory.display());
    let mut zones = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".zone") else { continue };
        zones.push((name.parse().map_err(|error| format!("{}: {error}", path.display()))?, path));
    }
    zones.sort();
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\nold CNAME ns\n";

    fn source(files: ZoneFiles, names: &[&str]) -> ZoneSource {
        let routing = Routing { ttl: 20, max_answers: 2, hot_rate: 0, alpn: Vec::new() };
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        ZoneSource { files, names, sites: true, redirects: Vec::new(), routing, signed: false }
    }

    #[test]
    fn hosts_of_sites_are_routed_in_their_zone_unless_its_file_has_them() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.test", "b.a.test"] {
            fs::write(directory.path().join(format!("{name}.zone")), ZONE).unwrap();
        }
        let hosts =
            ["www.a.test", "x.b.a.test", "old.a.test", "a.test", "elsewhere.test", "*.live.a.test"];
        let all = WorldSource {
            zones: vec![source(ZoneFiles::Directory(directory.path().to_owned()), &[])],
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            ..WorldSource::default()
        };
        let loaded = all.load().map_err(|wrong| format!("{wrong:?}")).unwrap();
        let routed = |name: &str| {
            let name: Name = name.parse().unwrap();
            loaded.world.zones.find(name.wire()).unwrap().routed()
        };
        assert_eq!((loaded.world.zones.len(), routed("a.test"), routed("b.a.test")), (2, 3, 1));
        let again = all.load().map_err(|wrong| format!("{wrong:?}")).unwrap();
        assert_eq!(again.version, loaded.version);
        fs::write(directory.path().join("a.test.zone"), format!("{ZONE}\n")).unwrap();
        assert_ne!(
            all.load().map_err(|wrong| format!("{wrong:?}")).unwrap().version,
            loaded.version
        );
    }

    #[test]
    fn all_that_is_wrong_is_said_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let one = |path: PathBuf| ZoneFiles::One("a.test".parse().unwrap(), path);
        let good = file("good", ZONE);
        let all = WorldSource {
            zones: vec![
                source(one(good.clone()), &["old"]),
                source(one(file("no-soa", "ns 60 A 192.0.2.1\n")), &[]),
                source(one(good.clone()), &[]),
                source(one(good), &[]),
                source(one(directory.path().join("none")), &[]),
                source(one(file("made", &format!("{ZONE}a DNAME b\n"))), &[]),
            ],
            regions: vec!["eu".into()],
            default_region: Some("us".to_owned()),
            coverage: Some(file("cz", "{}")),
            ..WorldSource::default()
        };
        let wrong = all.load().err().unwrap();
        let places: Vec<_> = wrong.iter().map(|(place, _)| *place).collect();
        let zone = Place::Zone;
        assert_eq!(
            places,
            [Place::Coverage, Place::DefaultRegion, zone(0), zone(1), zone(3), zone(4), zone(5)]
        );
        for (at, text) in
            [(1, "there is: eu"), (2, "old.a.test is routed"), (3, "has 0 SOA"), (4, "already")]
        {
            assert!(wrong[at].1.contains(text), "{}", wrong[at].1);
        }
    }
}
