-- SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-or-later
--
-- XCP for Wireshark and tshark: the TCP option of kind 254, identifier "XC".
-- Its layout is in core/xcp_wire.h. Try it with
--
--   tshark -X lua_script:wireshark/xcp.lua -Y xcp -V
--
-- or copy it into the folder that Wireshark's Help > About > Folders names
-- for personal Lua plugins.

local KIND, ID, VERSION = 254, 0x5843, 1
local HANDSHAKE, RETURN, FORWARD, BOTH = 4, 10, 22, 28
local TICKS_PER_S = 2 ^ 28
local HOPS_UNKNOWN, MANY_HOPS = 255, 15

local xcp = Proto("xcp", "Explicit Control Protocol")

local kind = ProtoField.string("xcp.kind", "Kind")
local version = ProtoField.uint8("xcp.version", "Version")
local forward = ProtoField.none("xcp.forward", "Forward header")
local rtt_ticks = ProtoField.uint32("xcp.rtt_ticks", "RTT, in 2^-28 s")
local rtt_s = ProtoField.double("xcp.rtt_s", "RTT, in s")
local x_ticks = ProtoField.uint32("xcp.x_ticks", "X, in 2^-28 s")
local x_s = ProtoField.double("xcp.x_s", "X, time between two packets, in s")
local delta = ProtoField.int32("xcp.delta_Bps", "Delta, change of throughput, in B/s")
local last_router = ProtoField.ipv4("xcp.last_xcp_router", "Last XCP router")
local xcp_ttl = ProtoField.uint8("xcp.xcp_ttl", "TTL as XCP routers lower it")
local hops = ProtoField.uint8("xcp.xcp_hops", "XCP routers passed so far")
local others = ProtoField.int16("xcp.other_hops", "Other routers passed so far")
local back = ProtoField.none("xcp.return", "Return header")
local feedback = ProtoField.int32("xcp.feedback_Bps", "Feedback, change granted, in B/s")
local seen_hops = ProtoField.uint8("xcp.seen_xcp_hops", "XCP routers that the receiver saw")
local seen_others = ProtoField.uint8("xcp.seen_other_hops", "Other routers that the receiver saw")
xcp.fields = {
	kind, version, forward, rtt_ticks, rtt_s, x_ticks, x_s, delta, last_router, xcp_ttl,
	hops, others, back, feedback, seen_hops, seen_others,
}

local malformed = ProtoExpert.new("xcp.malformed", "Malformed XCP option or TCP options",
	expert.group.MALFORMED, expert.severity.ERROR)
xcp.experts = { malformed }

local tcp_options = Field.new("tcp.options")
local ip_ttl = Field.new("ip.ttl")
local ip6_hop_limit = Field.new("ipv6.hlim")

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

local function add_forward(tree, o)
	local sub = tree:add(forward, o(0, FORWARD))
	local ttl = o(5, 1):uint()
	-- with tunnels there are several: the innermost is the segment's
	local ttls = { ip_ttl() }
	if #ttls == 0 then
		ttls = { ip6_hop_limit() }
	end
	add_hops(sub, hops, o(4, 1), o(4, 1):uint() % 16)
	sub:add(xcp_ttl, o(5, 1))
	if #ttls > 0 then
		sub:add(others, o(5, 1), ttl - ttls[#ttls].value):set_generated()
	end
	add_time(sub, rtt_ticks, rtt_s, o(6, 4))
	add_time(sub, x_ticks, x_s, o(10, 4))
	sub:add(delta, o(14, 4))
	sub:add(last_router, o(18, 4))
end

local function add_return(tree, o, at_hops, at_flags, at_feedback)
	local from = math.min(at_hops, at_flags)
	local sub = tree:add(back, o(from, at_feedback + 4 - from))
	local item = sub:add(seen_hops, o(at_hops, 1))
	if o(at_hops, 1):uint() == HOPS_UNKNOWN then
		item:append_text(" (nothing seen yet)")
	end
	add_hops(sub, seen_others, o(at_flags, 1), o(at_flags, 1):uint() % 16)
	sub:add(feedback, o(at_feedback, 4))
end

-- Adds the option in `o`, which is as long as it says.
local function add_option(tree, o)
	local length = o:len()
	if length == HANDSHAKE then
		tree:add(kind, o, "handshake")
		return "handshake"
	end
	local names = { [RETURN] = "return", [FORWARD] = "forward", [BOTH] = "both" }
	local name = names[length]
	if not name or math.floor(o(4, 1):uint() / 16) ~= VERSION then
		tree:add(kind, o, "malformed")
		tree:add_proto_expert_info(malformed)
		return "malformed"
	end
	tree:add(kind, o, name)
	tree:add(version, o(4, 1), VERSION)
	if name ~= "return" then
		add_forward(tree, o)
	end
	if name == "return" then
		add_return(tree, o, 5, 4, 6)
	elseif name == "both" then
		add_return(tree, o, 22, 23, 24)
	end
	return name
end

-- Walks TCP's options: the range of ours, nil if there is none; and whether
-- they do not parse.
local function find_option(options)
	local at, size = 0, options:len()
	while at < size do
		local k = options(at, 1):uint()
		if k == 0 then
			return nil, false
		elseif k == 1 then
			at = at + 1
		else
			if at + 2 > size then
				return nil, true
			end
			local length = options(at + 1, 1):uint()
			if length < 2 or at + length > size then
				return nil, true
			end
			if k == KIND and length >= HANDSHAKE and options(at + 2, 2):uint() == ID then
				return options(at, length), false
			end
			at = at + length
		end
	end
	return nil, false
end

function xcp.dissector(_, pinfo, root)
	for _, field in ipairs({ tcp_options() }) do
		local option, broken = find_option(field.range)
		if option then
			local tree = root:add(xcp, option)
			tree:append_text(", " .. add_option(tree, option))
			pinfo.cols.info:append(" [XCP]")
		elseif broken then
			local tree = root:add(xcp, field.range)
			tree:add(kind, field.range, "malformed")
			tree:add_proto_expert_info(malformed)
		end
	end
end

register_postdissector(xcp)
