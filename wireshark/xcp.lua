-- SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
--
-- XCP for Wireshark and tshark, in all its wire formats:
--
--   option        TCP option 254, identifier "XC"      core/xcp_option.h
--   option-2005   TCP options 14 and 15                core/xcp_option_2005.h
--   header        between IP and TCP, version 3        core/xcp_header.h
--   header-v2     the same place, version 2
--   header-2004   the same place, version 1
--
--   tshark -X lua_script:wireshark/xcp.lua -Y xcp -V
--
-- or copy it into the folder that Wireshark's Help > About > Folders names
-- for personal Lua plugins. Headers are IP protocol 253, or what the
-- preference says: -o xcp.ip_proto:200.

local KIND, ID, VERSION = 254, 0x5843, 1
local HANDSHAKE, RETURN, FORWARD, BOTH = 4, 10, 22, 28
local TOTALS, TOTALS_LEN = 0xfe045854, 4 -- an option without fields
local FORWARD_2005, FORWARD_2005_LEN = 14, 8
local RETURN_2005, RETURN_2005_LEN = 15, 4
local PACKET_2005 = 2 ^ 12 -- the unit of feedback is a packet's 4096th part
local TICKS_PER_S = 2 ^ 28
local TICKS_PER_MS = TICKS_PER_S / 1000
local TICKS_MOST, BPS_MOST = 2 ^ 32 - 1, 2 ^ 31 - 1
local HOPS_UNKNOWN, MANY_HOPS = 255, 15
local HEADER_PROTOCOL, HEADER_LEN = 253, 20
local FORMATS = { "standard", "minimal" }

local LENGTHS = { [20] = 20, [24] = 24, [36] = 36 }
-- draft -00 says 40 where it means 20
local LENGTHS_2004 = { [20] = 20, [24] = 24, [36] = 36, [40] = 20 }

-- Where a header's fields are. No header is of two versions.
local VERSIONS = {
	[3] = {
		wire = "header", protocol = 0, length = 1, tag = 2, lengths = LENGTHS,
		x = 4, rtt = 8, feedback = 12, delta = 16,
	},
	[2] = {
		wire = "header-v2", protocol = 0, length = 1, tag = 2, lengths = LENGTHS,
		rtt = 4, x = 8, delta = 12, feedback = 16,
	},
	[1] = {
		wire = "header-2004", tag = 0, protocol = 1, length = 2, lengths = LENGTHS_2004,
		rtt_ms = 4, throughput = 8, delta = 12, feedback = 16,
	},
}

local xcp = Proto("xcp", "Explicit Control Protocol")

local wire = ProtoField.string("xcp.wire", "Wire format")
local kind = ProtoField.string("xcp.kind", "Kind")
local version = ProtoField.uint8("xcp.version", "Version of the forward header")
local totals = ProtoField.bool("xcp.totals", "Understands running totals")
local header_version = ProtoField.uint8("xcp.header_version", "Version of the header")
local format = ProtoField.string("xcp.format", "Format")
local length = ProtoField.uint8("xcp.header_length", "Length of the header, in bytes")
local next_protocol = ProtoField.uint8("xcp.next_protocol", "IP protocol that follows")
local forward = ProtoField.none("xcp.forward", "Forward header")
local rtt_ticks = ProtoField.uint32("xcp.rtt_ticks", "RTT, in 2^-28 s")
local rtt_s = ProtoField.double("xcp.rtt_s", "RTT, in s")
local rtt_ms = ProtoField.uint32("xcp.rtt_ms", "RTT, in ms")
local cwnd = ProtoField.uint16("xcp.cwnd", "Packets in flight in this RTT")
local throughput = ProtoField.uint32("xcp.throughput_B_per_ms", "Throughput, in B/ms")
local x_ticks = ProtoField.uint32("xcp.x_ticks", "X, in 2^-28 s")
local x_s = ProtoField.double("xcp.x_s", "X, time between two packets, in s")
local delta = ProtoField.int32("xcp.delta_Bps", "Delta, change of throughput, in B/s")
local code = ProtoField.uint16("xcp.feedback_code", "H_feedback, 13 bits 16^(3 bits)", base.HEX)
local packets = ProtoField.double("xcp.feedback_packets", "H_feedback, in packets")
local last_router = ProtoField.ipv4("xcp.last_xcp_router", "Last XCP router")
local last_router_6 = ProtoField.ipv6("xcp.last_xcp_router_ipv6", "Last XCP router")
local xcp_ttl = ProtoField.uint8("xcp.xcp_ttl", "TTL as XCP routers lower it")
local hops = ProtoField.uint8("xcp.xcp_hops", "XCP routers passed so far")
local others = ProtoField.int16("xcp.other_hops", "Other routers passed so far")
local back = ProtoField.none("xcp.return", "Return header")
local feedback = ProtoField.int32("xcp.feedback_Bps", "Feedback, change granted, in B/s")
local total = ProtoField.int32("xcp.feedback_total", "Feedback, running total, in 8 B/s")
local back_version = ProtoField.uint8("xcp.return_version", "Version of the return header")
local back_code = ProtoField.uint16("xcp.return_feedback_code",
	"H_feedback returned, 13 bits 16^(3 bits)", base.HEX)
local back_packets = ProtoField.double("xcp.return_feedback_packets",
	"H_feedback returned, in packets")
local seen_hops = ProtoField.uint8("xcp.seen_xcp_hops", "XCP routers that the receiver saw")
local seen_others = ProtoField.uint8("xcp.seen_other_hops", "Other routers that the receiver saw")
local seen_ttl = ProtoField.uint8("xcp.seen_xcp_ttl_mod_15", "TTL that the receiver saw, mod 15")
xcp.fields = {
	wire, kind, version, totals, header_version, format, length, next_protocol,
	forward, rtt_ticks, rtt_s, rtt_ms, cwnd, throughput, x_ticks, x_s, delta, code, packets,
	last_router, last_router_6, xcp_ttl, hops, others,
	back, back_version, feedback, total, back_code, back_packets,
	seen_hops, seen_others, seen_ttl,
}

local malformed = ProtoExpert.new("xcp.malformed", "Malformed XCP header, option or TCP options",
	expert.group.MALFORMED, expert.severity.ERROR)
xcp.experts = { malformed }

local tcp_options = Field.new("tcp.options")
local tcp_header_length = Field.new("tcp.hdr_len")
local ip_ttl = Field.new("ip.ttl")
local ip6_hop_limit = Field.new("ipv6.hlim")

local function nibbles(range)
	local byte = range:uint()
	return math.floor(byte / 16), byte % 16
end

local function towards_zero(value)
	return value < 0 and math.ceil(value) or math.floor(value)
end

local function add_hops(tree, field, range, value)
	local item = tree:add(field, range, value)
	if value == MANY_HOPS then
		item:append_text(" or more")
	end
end

local function add_time(tree, in_ticks, in_s, range)
	local item = tree:add(in_ticks, range)
	if range:uint() == 0 then
		item:append_text(" (unknown)")
	end
	tree:add(in_s, range, range:uint() / TICKS_PER_S)
end

-- A time that is not told in ticks: as routers take it.
local function add_computed_time(tree, in_ticks, in_s, range, ticks)
	ticks = math.min(math.floor(ticks), TICKS_MOST)
	tree:add(in_ticks, range, ticks):set_generated()
	tree:add(in_s, range, ticks / TICKS_PER_S):set_generated()
end

-- xcp_ttl, and how far it is ahead of the packet's TTL.
local function add_ttl(tree, range)
	-- with tunnels there are several: the innermost is the segment's
	local ttls = { ip_ttl() }
	if #ttls == 0 then
		ttls = { ip6_hop_limit() }
	end
	tree:add(xcp_ttl, range)
	if #ttls > 0 then
		tree:add(others, range, range:uint() - ttls[#ttls].value):set_generated()
	end
end

local function add_malformed(tree, range)
	tree:add(kind, range, "malformed")
	tree:add_proto_expert_info(malformed)
end

-- The format `option`.

local FORMS = {
	[HANDSHAKE] = { name = "handshake" },
	[RETURN] = { name = "return", back = { flags = 4, hops = 5, feedback = 6 } },
	[FORWARD] = { name = "forward", forward = true },
	[BOTH] = {
		name = "both", forward = true, back = { hops = 22, flags = 23, feedback = 24 },
	},
}

-- The versions of a return header: a change, or the total of all changes.
local FEEDBACKS = { [1] = feedback, [2] = total }

-- The form of this option; nil if it is malformed.
local function form_of(o)
	local form = FORMS[o:len()]
	if not form or (form.forward and nibbles(o(4, 1)) ~= VERSION) then
		return nil
	end
	if form.back and not form.forward and not FEEDBACKS[nibbles(o(form.back.flags, 1))] then
		return nil
	end
	return form
end

local function add_forward(tree, o)
	local sub = tree:add(forward, o(0, FORWARD))
	sub:add(version, o(4, 1), VERSION)
	add_hops(sub, hops, o(4, 1), o(4, 1):uint() % 16)
	add_ttl(sub, o(5, 1))
	add_time(sub, rtt_ticks, rtt_s, o(6, 4))
	add_time(sub, x_ticks, x_s, o(10, 4))
	sub:add(delta, o(14, 4))
	sub:add(last_router, o(18, 4))
end

local function add_return(tree, o, at)
	local from = math.min(at.hops, at.flags)
	local sub = tree:add(back, o(from, at.feedback + 4 - from))
	local number, other = nibbles(o(at.flags, 1))
	sub:add(back_version, o(at.flags, 1), number)
	local item = sub:add(seen_hops, o(at.hops, 1))
	if o(at.hops, 1):uint() == HOPS_UNKNOWN then
		item:append_text(" (nothing seen yet)")
	end
	add_hops(sub, seen_others, o(at.flags, 1), other)
	if FEEDBACKS[number] then -- no matter to routers, if it is unknown
		sub:add(FEEDBACKS[number], o(at.feedback, 4))
	end
end

-- Adds the option in `o`, which is as long as it says, and the one for running
-- totals behind a handshake, if there is one.
local function add_option(root, o, totals_option)
	local tree = root:add(xcp, o)
	local form = form_of(o)
	if not form then
		add_malformed(tree, o)
		return
	end
	tree:append_text(", " .. form.name)
	tree:add(wire, o, "option"):set_generated()
	tree:add(kind, o, form.name)
	if form.name == "handshake" and totals_option then
		tree:add(totals, totals_option, true)
	end
	if form.forward then
		add_forward(tree, o)
	end
	if form.back then
		add_return(tree, o, form.back)
	end
end

-- The format `option-2005`.

-- H_feedback in packets.
local function packets_of(range)
	local value = range:uint()
	local mantissa = math.floor(value / 8)
	if mantissa >= 2 ^ 12 then
		mantissa = mantissa - 2 ^ 13
	end
	return mantissa * 16 ^ (value % 8) / PACKET_2005
end

-- A change of throughput by so many packets in H_rtt, as routers count it.
local function delta_2005(o, size_B)
	local per_s = 1000 / math.max(o(4, 2):uint(), 1)
	local Bps = towards_zero(packets_of(o(2, 2)) * size_B * per_s)
	return math.max(math.min(Bps, BPS_MOST), -BPS_MOST)
end

local function add_forward_2005(tree, o, size_B)
	local sub = tree:add(forward, o)
	local rtt = math.floor(o(4, 2):uint() * TICKS_PER_MS)
	local window = math.max(o(6, 2):uint(), 1)
	sub:add(code, o(2, 2))
	sub:add(packets, o(2, 2), packets_of(o(2, 2)))
	local item = sub:add(rtt_ms, o(4, 2))
	if rtt == 0 then
		item:append_text(" (unknown)")
	end
	sub:add(cwnd, o(6, 2))
	add_computed_time(sub, rtt_ticks, rtt_s, o(4, 2), rtt)
	add_computed_time(sub, x_ticks, x_s, o(4, 4), (rtt + math.floor(window / 2)) / window)
	sub:add(delta, o(2, 4), delta_2005(o, size_B)):set_generated()
end

local function add_return_2005(tree, o)
	local sub = tree:add(back, o)
	sub:add(back_code, o(2, 2))
	sub:add(back_packets, o(2, 2), packets_of(o(2, 2)))
end

local function add_options_2005(root, ahead, returned, size_B)
	local first = ahead or returned
	local tree = root:add(xcp, first)
	local name = not returned and "forward" or not ahead and "return" or "both"
	tree:append_text(" of 2005, " .. name)
	tree:add(wire, first, "option-2005"):set_generated()
	tree:add(kind, first, name):set_generated()
	if ahead then
		add_forward_2005(tree, ahead, size_B)
	end
	if returned then
		add_return_2005(tree, returned)
	end
end

-- TCP's options.

-- The next option of more than one byte, and where it ends; nil if there is
-- none, and then, whether they do not parse.
local function next_option(options, at)
	local size = options:len()
	while at < size and options(at, 1):uint() == 1 do
		at = at + 1
	end
	if at >= size or options(at, 1):uint() == 0 then
		return nil, false
	end
	if at + 2 > size then
		return nil, true
	end
	local option_length = options(at + 1, 1):uint()
	if option_length < 2 or at + option_length > size then
		return nil, true
	end
	return options(at, option_length), at + option_length
end

local function is_option(o)
	return o(0, 1):uint() == KIND and o:len() >= HANDSHAKE and o(2, 2):uint() == ID
end

local function is_2005(o, its_kind, its_length)
	return o(0, 1):uint() == its_kind and o:len() == its_length
end

-- The option for running totals, if it is at this place.
local function totals_at(options, at)
	if at + TOTALS_LEN <= options:len() and options(at, TOTALS_LEN):uint() == TOTALS then
		return options(at, TOTALS_LEN)
	end
end

-- Walks them as routers do, which read no further than what they change; the
-- return option of 2005 may stand behind.
local function find_options(options)
	local found = {}
	local o, at = next_option(options, 0)
	while o do
		if is_option(o) and not found.forward then
			return { option = o, totals = totals_at(options, at) }
		elseif is_2005(o, FORWARD_2005, FORWARD_2005_LEN) then
			found.forward = found.forward or o
		elseif is_2005(o, RETURN_2005, RETURN_2005_LEN) then
			found.back = found.back or o
		end
		o, at = next_option(options, at)
	end
	if at and not found.forward then
		return { broken = true }
	end
	return found
end

local tcp = Proto("xcp_tcp", "Explicit Control Protocol in TCP's options")

-- Whether the capture holds less of these options than there was.
local function is_cut(options, header_length)
	return header_length and 20 + options:len() < header_length.value
end

function tcp.dissector(_, pinfo, root)
	local header_lengths = { tcp_header_length() }
	for i, field in ipairs({ tcp_options() }) do
		local found = find_options(field.range)
		if found.option then
			add_option(root, found.option, found.totals)
		elseif found.forward or found.back then
			add_options_2005(root, found.forward, found.back, pinfo.len)
		elseif found.broken and not is_cut(field.range, header_lengths[i]) then
			add_malformed(root:add(xcp, field.range), field.range)
		end
		if found.option or found.forward or found.back then
			pinfo.cols.info:append(" [XCP]")
		end
	end
end

-- The header.

-- Its version and format, and the length it means; nil if it is none.
local function read_header(h)
	for number = #VERSIONS, 1, -1 do
		local at = VERSIONS[number]
		local says, form = nibbles(h(at.tag, 1))
		local means = at.lengths[h(at.length, 1):uint()]
		if says == number and FORMATS[form] and means then
			return number, FORMATS[form], means
		end
	end
end

-- RTT in ms, and throughput, of which X follows for a packet's size.
local function add_pace_2004(tree, h, at, size_B)
	local speed = h(at.throughput, 4):uint()
	local x = speed == 0 and 0 or size_B * TICKS_PER_MS / speed
	local item = tree:add(rtt_ms, h(at.rtt_ms, 4))
	if h(at.rtt_ms, 4):uint() == 0 then
		item:append_text(" (unknown)")
	end
	tree:add(throughput, h(at.throughput, 4))
	add_computed_time(tree, rtt_ticks, rtt_s, h(at.rtt_ms, 4),
		h(at.rtt_ms, 4):uint() * TICKS_PER_MS)
	add_computed_time(tree, x_ticks, x_s, h(at.throughput, 4), x)
end

local function add_standard(tree, h, at, size_B)
	local sub = tree:add(forward, h)
	if h(3, 1):uint() == 0 then
		sub:add(xcp_ttl, h(3, 1)):append_text(" (not told)")
	else
		add_ttl(sub, h(3, 1))
	end
	if at.throughput then
		add_pace_2004(sub, h, at, size_B)
	else
		add_time(sub, rtt_ticks, rtt_s, h(at.rtt, 4))
		add_time(sub, x_ticks, x_s, h(at.x, 4))
	end
	sub:add(delta, h(at.delta, 4))
end

-- The path to this host, as the receiver of the other direction saw it.
local function add_way(tree, range)
	local ttl, other = nibbles(range)
	if ttl == 0 then
		return
	end
	tree:add(seen_ttl, range, ttl - 1)
	add_hops(tree, seen_others, range, other)
end

local function add_header(tree, h, number, form, size_B)
	local at = VERSIONS[number]
	tree:append_text(string.format(", version %d, %s", number, form))
	tree:add(wire, h, at.wire):set_generated()
	tree:add(kind, h, form == "minimal" and "return" or "both"):set_generated()
	tree:add(header_version, h(at.tag, 1), number)
	tree:add(format, h(at.tag, 1), form)
	tree:add(length, h(at.length, 1))
	tree:add(next_protocol, h(at.protocol, 1))
	if form == "standard" then
		add_standard(tree, h, at, size_B)
	end
	local sub = tree:add(back, h)
	sub:add(feedback, h(at.feedback, 4))
	if form == "minimal" then
		add_way(sub, h(3, 1))
	end
	if h:len() == HEADER_LEN + 4 then
		tree:add(last_router, h(HEADER_LEN, 4))
	elseif h:len() == HEADER_LEN + 16 then
		tree:add(last_router_6, h(HEADER_LEN, 16))
	end
end

local ip_protocols = DissectorTable.get("ip.proto")

-- What follows is decoded as if it stood right behind IP. Wireshark itself says
-- what is wrong with it, and then stops the script too: pcall.
local function dissect_rest(rest, protocol, pinfo, root)
	local dissector = ip_protocols:get_dissector(protocol) or Dissector.get("data")
	pcall(dissector.call, dissector, rest:tvb(), pinfo, root)
end

-- Whether it is no header, rather than one that the capture has cut.
local function is_malformed(tvb, number, means)
	if tvb:len() < HEADER_LEN then
		return tvb:reported_len() < HEADER_LEN
	end
	return not number or means > tvb:reported_len()
end

function xcp.dissector(tvb, pinfo, root)
	pinfo.cols.protocol = "XCP"
	local number, form, means
	if tvb:len() >= HEADER_LEN then
		number, form, means = read_header(tvb)
	end
	if number and means <= tvb:len() then
		local h = tvb(0, means)
		add_header(root:add(xcp, h), h, number, form, pinfo.len)
		if means < tvb:len() then
			local protocol = tvb(VERSIONS[number].protocol, 1):uint()
			dissect_rest(tvb(means), protocol, pinfo, root)
		end
		pinfo.cols.info:append(" [XCP]")
	elseif tvb:len() > 0 and is_malformed(tvb, number, means) then
		add_malformed(root:add(xcp, tvb()), tvb())
	end
	return tvb:len()
end

-- Headers are known by one number at a time.

xcp.prefs.ip_proto = Pref.uint("IP protocol", HEADER_PROTOCOL,
	"The IP protocol number of XCP headers")

local known_by

local function know_header_by(protocol)
	if known_by then
		ip_protocols:remove(known_by, xcp)
	end
	known_by = protocol
	ip_protocols:add(known_by, xcp)
end

function xcp.prefs_changed()
	know_header_by(xcp.prefs.ip_proto)
end

know_header_by(HEADER_PROTOCOL)
register_postdissector(tcp)
