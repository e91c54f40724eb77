"""Plays transfers over ns-3: a server on a fast link, a slow link in the middle, and clients on fast links.

Reads one JSON object from standard input: middle and edge as {ms, bps, packets}, segment, window,
initial_window, and transfers as [{at, client, bytes}] in seconds. Each transfer begins when the server
opens the connection, and the time is from its end of the handshake to the client's last byte. Prints a
line of JSON: the times in order (null for one that does not end), and the processor time.
"""

import json
import sys
import time

from ns import ns

ns.cppyy.cppdef(
    """
    #include "ns3/core-module.h"
    #include "ns3/network-module.h"
    #include "ns3/internet-module.h"
    #include "ns3/applications-module.h"
    namespace levada {
    using namespace ns3;
    std::vector<double> begun, ended;
    std::vector<uint64_t> missing;
    void Send(Ptr<Socket> socket, uint32_t free, int number) {
        while (missing[number] > 0 && socket->GetTxAvailable() > 0) {
            uint32_t part = std::min<uint64_t>(missing[number], socket->GetTxAvailable());
            int sent = socket->Send(Create<Packet>(part));
            if (sent <= 0) return;
            missing[number] -= sent;
        }
        if (missing[number] == 0) socket->Close();
    }
    void Connected(Ptr<Socket> socket, int number) {
        begun[number] = Simulator::Now().GetSeconds();
        Send(socket, 0, number);
    }
    void Start(Ptr<Node> node, Ipv4Address client, uint16_t port, int number) {
        Ptr<Socket> socket = Socket::CreateSocket(node, TcpSocketFactory::GetTypeId());
        socket->Bind();
        socket->SetConnectCallback(
            Callback<void, Ptr<Socket>>([number](Ptr<Socket> s) { Connected(s, number); }),
            MakeNullCallback<void, Ptr<Socket>>());
        socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>(
            [number](Ptr<Socket> s, uint32_t f) { if (begun[number] >= 0) Send(s, f, number); }));
        socket->Connect(InetSocketAddress(client, port));
    }
    void Received(std::vector<uint64_t>* left, int number, Ptr<const Packet> packet, const Address&) {
        (*left)[number] -= std::min<uint64_t>((*left)[number], packet->GetSize());
        if ((*left)[number] == 0) ended[number] = Simulator::Now().GetSeconds();
    }
    std::vector<uint64_t> left;
    void Watch(Ptr<Application> sink, int number) {
        sink->TraceConnectWithoutContext("Rx", Callback<void, Ptr<const Packet>, const Address&>(
            [number](Ptr<const Packet> p, const Address& a) { Received(&left, number, p, a); }));
    }
    void Schedule(double at, Ptr<Node> node, Ipv4Address client, uint16_t port, int number) {
        Simulator::Schedule(Seconds(at), [=]() { Start(node, client, port, number); });
    }
    void Prepare(std::vector<uint64_t> bytes) {
        begun.assign(bytes.size(), -1); ended.assign(bytes.size(), -1);
        missing = bytes; left = bytes;
    }
    }
    """
)


def main(plan):
    segment = plan["segment"]
    settings = {
        "ns3::TcpL4Protocol::SocketType": ns.TypeIdValue(ns.TypeId.LookupByName("ns3::TcpLinuxReno")),
        "ns3::TcpL4Protocol::RecoveryType": ns.TypeIdValue(
            ns.TypeId.LookupByName("ns3::TcpClassicRecovery")
        ),
        "ns3::TcpSocket::SegmentSize": ns.UintegerValue(segment),
        "ns3::TcpSocket::InitialCwnd": ns.UintegerValue(plan["initial_window"]),
        "ns3::TcpSocket::DelAckCount": ns.UintegerValue(1),
        "ns3::TcpSocket::ConnTimeout": ns.TimeValue(ns.Seconds(3)),
        "ns3::TcpSocket::SndBufSize": ns.UintegerValue(1 << 22),
        "ns3::TcpSocket::RcvBufSize": ns.UintegerValue(segment * plan["window"]),
        "ns3::TcpSocketBase::Sack": ns.BooleanValue(False),
        "ns3::TcpSocketBase::Timestamp": ns.BooleanValue(False),
        "ns3::TcpSocketBase::WindowScaling": ns.BooleanValue(False),
        "ns3::TcpSocketBase::LimitedTransmit": ns.BooleanValue(False),
        "ns3::TcpSocketBase::MinRto": ns.TimeValue(ns.Seconds(1)),
    }
    for name, value in settings.items():
        ns.Config.SetDefault(name, value)

    clients = 1 + max(transfer["client"] for transfer in plan["transfers"])
    nodes = ns.NodeContainer()
    nodes.Create(3 + clients)
    server, left, right = (nodes.Get(n) for n in range(3))
    ns.InternetStackHelper().Install(nodes)
    addresses = ns.Ipv4AddressHelper()
    addresses.SetBase(ns.Ipv4Address("10.0.0.0"), ns.Ipv4Mask("255.255.255.0"))

    def join(a, b, link):
        helper = ns.PointToPointHelper()
        helper.SetDeviceAttribute("DataRate", ns.StringValue(f"{link['bps']}bps"))
        helper.SetChannelAttribute("Delay", ns.StringValue(f"{link['ms']}ms"))
        helper.SetQueue("ns3::DropTailQueue", "MaxSize", ns.StringValue(f"{link['packets']}p"))
        devices = helper.Install(a, b)
        interfaces = addresses.Assign(devices)
        addresses.NewNetwork()
        # The queue of the device is the only one.
        ns.TrafficControlHelper().Uninstall(devices)
        return interfaces

    join(server, left, plan["edge"])
    join(left, right, plan["middle"])
    at = [join(right, nodes.Get(3 + n), plan["edge"]).GetAddress(1) for n in range(clients)]
    ns.Ipv4GlobalRoutingHelper.PopulateRoutingTables()

    ns.cppyy.gbl.levada.Prepare(ns.cppyy.gbl.std.vector["uint64_t"](
        [transfer["bytes"] for transfer in plan["transfers"]]
    ))
    for number, transfer in enumerate(plan["transfers"]):
        port = 1000 + number
        local = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), port).ConvertTo()
        sink = ns.PacketSinkHelper("ns3::TcpSocketFactory", local).Install(
            nodes.Get(3 + transfer["client"])
        )
        sink.Start(ns.Seconds(0))
        ns.cppyy.gbl.levada.Watch(sink.Get(0), number)
        ns.cppyy.gbl.levada.Schedule(
            transfer["at"], server, at[transfer["client"]], port, number
        )
    begun = time.process_time()
    ns.Simulator.Stop(ns.Seconds(plan["until"]))
    ns.Simulator.Run()
    took = time.process_time() - begun
    events = ns.Simulator.GetEventCount()
    ends, begins = ns.cppyy.gbl.levada.ended, ns.cppyy.gbl.levada.begun
    times = [e - b if e >= 0 else None for b, e in zip(list(begins), list(ends))]
    print(json.dumps({"times": times, "seconds": took, "events": events}), flush=True)


main(json.load(sys.stdin))
