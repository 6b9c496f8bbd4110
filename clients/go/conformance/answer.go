package main

import (
	"encoding/json"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	placetv1 "placet.dev/api/placet/v1"
)

// answer is what a program sees of one call.
type answer struct {
	Code         string            `json:"code"`
	Message      string            `json:"message"`
	Details      int               `json:"details"`
	Infos        []info            `json:"infos"`
	Outcomes     []json.RawMessage `json:"outcomes"`
	RetrySeconds []float64         `json:"retry_seconds"`
	Violations   [][]string        `json:"violations"`
	Quota        [][]string        `json:"quota"`
	Headers      map[string]string `json:"headers"`
	Trailers     map[string]string `json:"trailers"`
	Responses    []json.RawMessage `json:"responses"`
}

type info struct {
	Domain   string            `json:"domain"`
	Reason   string            `json:"reason"`
	Metadata map[string]string `json:"metadata"`
}

func answerOf(err error, headers, trailers metadata.MD, responses []json.RawMessage) answer {
	read := status.Convert(err)
	made := answer{
		Code:         code.Code(read.Code()).String(),
		Message:      read.Message(),
		Infos:        []info{},
		Outcomes:     []json.RawMessage{},
		RetrySeconds: []float64{},
		Violations:   [][]string{},
		Quota:        [][]string{},
		Headers:      ours(headers),
		Trailers:     ours(trailers),
		Responses:    responses,
	}
	for _, detail := range read.Details() {
		made.Details++
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			variables := map[string]string{}
			for name, value := range detail.GetMetadata() {
				variables[name] = value
			}
			made.Infos = append(made.Infos, info{detail.GetDomain(), detail.GetReason(), variables})
		case *placetv1.Outcome:
			made.Outcomes = append(made.Outcomes, jsonOf(detail))
		case *errdetails.RetryInfo:
			made.RetrySeconds = append(made.RetrySeconds, detail.GetRetryDelay().AsDuration().Seconds())
		case *errdetails.BadRequest:
			for _, v := range detail.GetFieldViolations() {
				made.Violations = append(made.Violations, []string{v.GetField(), v.GetDescription(), v.GetReason()})
			}
		case *errdetails.QuotaFailure:
			for _, v := range detail.GetViolations() {
				made.Quota = append(made.Quota, []string{v.GetSubject(), v.GetDescription()})
			}
		}
	}
	return made
}

func ours(pairs metadata.MD) map[string]string {
	kept := map[string]string{}
	for name, values := range pairs {
		if strings.HasPrefix(name, "placet-") || name == "grpc-retry-pushback-ms" {
			kept[name] = strings.Join(values, ",")
		}
	}
	return kept
}
