"""Writes the country databases of the tests: pip install mmdb_writer; python3 make.py"""
from netaddr import IPSet
from mmdb_writer import MMDBWriter

COUNTRIES = {
    "countries.mmdb": {"DE": ["127.0.0.2/32", "192.0.2.0/24", "2001:db8:1::/48"], "FR": ["127.0.0.3/32"]},
    "countries-later.mmdb": {"DE": ["127.0.0.3/32"], "FR": ["127.0.0.2/32"]},
}
for name, countries in COUNTRIES.items():
    writer = MMDBWriter(ip_version=6, ipv4_compatible=True, database_type="Test-Country", languages=["en"])
    for code, networks in countries.items():
        writer.insert_network(IPSet(networks), {"country": {"iso_code": code, "names": {"en": code}}})
    writer.to_db_file(name)
